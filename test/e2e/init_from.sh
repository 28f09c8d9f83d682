#!/bin/sh
# Weights taken from elsewhere (model.init_from): a run folder, one checkpoint, and a Hugging Face folder imported again
# start the same run, with and without the model in the configuration.
. test/e2e/lib/train.sh
ends 0 train first
ends 0 "$wanhe" export "$tmp/first" "$tmp/hf"
ends 0 "$wanhe" import "$tmp/hf" "$tmp/imported"
ends 0 train run --set model.init_from="$tmp/first"
ends 0 train fresh
[ "$(numbers run)" != "$(numbers fresh)" ]
report $? "the weights are not fresh ones"

# The same configuration but for the model.
sed '/model_config:/,/tie_word_embeddings/d' examples/tiny-llama.yaml >"$tmp/no-model.yaml"
number=0
for from in "$tmp/first" "$tmp/first/checkpoints/step-00000020" "$tmp/imported"; do
    number=$((number + 1))
    ends 0 train given$number --set model.init_from="$from"
    same run given$number "weights from $(basename "$from")"
    ends 0 "$wanhe" train "$tmp/no-model.yaml" --out "$tmp/taken$number" --set model.init_from="$from" --threads 1 \
        --set data.train="$tmp/text.txt" --set tokens.sequence_length=32
    same run taken$number "weights and model from $(basename "$from")"
done
ends 3 "$wanhe" train "$tmp/no-model.yaml" --out "$tmp/none" --set model.init_from="$tmp/nowhere"
says "$tmp/nowhere is not a folder"
[ ! -e "$tmp/none" ]
report $? "nothing was made"
ends 3 train other --set model.init_from="$tmp/first" --set model.model_config.hidden_size=64
says "embed.token.weight"
exit "$failed"
