#!/bin/sh
# A wrong configuration is refused before anything is made: all faults at once, each at its line, with what would be legal
# (cases B04, B19, B21), and exit codes that a scheduler can act on.
. test/e2e/lib/train.sh
absent() { [ ! -e "$tmp/$1" ]; report $? "nothing was made in $1"; }
line_of() { grep -n "$1" "$tmp/run.yaml" | head -n 1 | cut -d : -f 1; }

cat >"$tmp/run.yaml" <<END
general: {run: wrong}
model:
  dtype: float8
  model_config:
    model_type: llama
    hidden_size: 33
    intermediate_size: 96
    num_hidden_layers: 2
    num_attention_heads: 4
    num_key_value_heads: 3
    vocab_size: 256
data:
  train: $tmp/text.txt
tokens:
  global_batch_size: 30
  micro_batch_size: 8
  sequence_length: 32
  trian_steps: 20
optimizer:
  clip_grad: -1
parallelism:
  cp: 2
END
ends 3 "$wanhe" train "$tmp/run.yaml" --out "$tmp/out"
says "$tmp/run.yaml:$(line_of float8)"
says "float32|bfloat16"
says "$tmp/run.yaml:$(line_of trian_steps)"
says "did you mean 'tokens.train_steps'?"
says "$tmp/run.yaml:$(line_of clip_grad)"
says "30 mod 8 = 6; nearest legal: 24 or 32"
says "parallelism.cp 2 is not built yet; nearest legal: 1"
says "hidden_size 33"
[ "$(grep -c "^$tmp/run.yaml:[0-9]" "$tmp/said")" -ge 6 ]
report $? "at least six faults at once"
absent out

refused() { # SAYS OPTION...: with 3 and this text, and nothing made
    text=$1
    shift
    ends 3 train refused "$@"
    says "$text"
    absent refused
}
refused "tokens.global_batch_size 32 is not a multiple of tokens.micro_batch_size 3" \
    --set tokens.global_batch_size=32 --set tokens.micro_batch_size=3
refused "4 < 8" --set tokens.global_batch_size=4 --set tokens.micro_batch_size=8
refused "parallelism.pp 3 with 1 stage each is above num_hidden_layers 2" --set parallelism.pp=3
refused "tokens.global_batch_size 8 != tokens.micro_batch_size 2 * tokens.batch_accumulation_per_replica 2 * parallelism.dp 1 = 4" \
    --set tokens.micro_batch_size=2 --set tokens.batch_accumulation_per_replica=2
refused "tokens.sequence_length 129 is above max_position_embeddings 128" --set tokens.sequence_length=129
refused "grain.data 3" --set grain.data=3
refused "needs model.dtype bfloat16" --set optimizer.accumulate_grad_in_fp32=false
refused "data.document_mask needs data.end_of_text" --set data.document_mask=true
refused "checkpoints.checkpoints_path" --set checkpoints.checkpoints_path="$tmp/elsewhere"
refused "vocab_size 255 is below the 256 tokens" --set model.model_config.vocab_size=255
refused "--set" --set nonsense
refused "tokens.train_steps" --set tokens.train_steps=1e3
refused "threads" --set threads=4097
refused "general.run" --set general.run=../up

# What the data or the machine refuse has codes of its own.
ends 1 train data --set tokens.sequence_length=128 --set tokens.global_batch_size=512 --set tokens.micro_batch_size=1
says "$(printf %s 512)"
ends 4 train big --set model.model_config.hidden_size=65536 --set model.model_config.intermediate_size=262144 \
    --set model.model_config.num_hidden_layers=60
says "GiB"
says "model.dtype: bfloat16"
ends 1 "$wanhe" train "$tmp/no.yaml" --out "$tmp/no"
says "$tmp/no.yaml: No such file or directory"
absent no
ends 2 train usage --resmue
absent usage
printf 'general: {run: [\n' >"$tmp/broken.yaml"
ends 3 "$wanhe" train "$tmp/broken.yaml" --out "$tmp/broken"
says "$tmp/broken.yaml:"
absent broken
echo text >"$tmp/file"
ends 1 train file
says "$tmp/file"

# A loss that is not finite ends the run; the checkpoints before it stay, and nothing of it is saved.
ends 1 train nan --set optimizer.learning_rate_scheduler.learning_rate=1e6 --set optimizer.clip_grad=off \
    --set optimizer.learning_rate_scheduler.min_decay_lr=0 --set checkpoints.checkpoint_interval=1
says "not finite"
exit "$failed"
