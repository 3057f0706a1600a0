#!/usr/bin/env bash
# In @bufbuild/cel 0.6.1, has(m.k) and 'k' in m are false for a key whose value is null, while m.k == null is true and size(m) counts the
# key. The definition of CEL (macros, has) asks whether the key is in the map, whatever its value; @marcbachmann/cel-js 8.0.0 and cel-go say
# true. A condition over JSON that asks "was the field sent?" so means another thing in each: a device that sends null has, or has not, sent it.
# Needs Node.js 22 and network access to npm. Exits 0 while the behaviour is as described.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm init -y >npm.log
npm install --no-audit --no-fund @bufbuild/cel@0.6.1 @marcbachmann/cel-js@8.0.0 >npm.log 2>&1
cat >ask.mjs <<'JS'
import { run } from '@bufbuild/cel'
import { evaluate } from '@marcbachmann/cel-js'

const variables = { m: { k: null } }
const wanted = {
  'has(m.k)': [false, true],
  "'k' in m": [false, true],
  'm.k == null': [true, true],
  'size(m) == 1': [true, true],
}
let isAsDescribed = true
for (const [expression, expected] of Object.entries(wanted)) {
  const seen = [run(expression, variables), evaluate(expression, variables)]
  console.log(`${expression} with {"m": {"k": null}}: @bufbuild/cel 0.6.1 ${seen[0]}, @marcbachmann/cel-js 8.0.0 ${seen[1]}`)
  isAsDescribed &&= seen.every((value, index) => value === expected[index])
}
process.exitCode = isAsDescribed ? 0 : 1
JS
node ask.mjs
