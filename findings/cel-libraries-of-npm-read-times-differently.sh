#!/usr/bin/env bash
# The same CEL expression about time means different things in two libraries of npm. timestamp(1764459000) is 2025-11-29 in
# @marcbachmann/cel-js 8.0.0 and in cel-go, which read seconds, and 1970-01-21 in @bufbuild/cel 0.6.1, which reads milliseconds.
# duration('3.5s').getMilliseconds() is 3500 in the first two and 500 in the last, which returns the part below a second: "older than five
# seconds", written as (now - last).getMilliseconds() > 5000, is never true there. Both are valid by the types, so no check finds them.
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

const wanted = {
  "timestamp(1764459000).getFullYear()": [1970n, 2025n],
  "duration('3.5s').getMilliseconds()": [500n, 3500n],
  "duration('7s').getMilliseconds() > 5000": [false, true],
}
let isAsDescribed = true
for (const [expression, expected] of Object.entries(wanted)) {
  const seen = [run(expression), evaluate(expression)]
  console.log(`${expression}: @bufbuild/cel 0.6.1 ${seen[0]}, @marcbachmann/cel-js 8.0.0 ${seen[1]}`)
  isAsDescribed &&= seen.every((value, index) => value === expected[index])
}
process.exitCode = isAsDescribed ? 0 : 1
JS
node ask.mjs
