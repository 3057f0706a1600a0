#!/usr/bin/env bash
# jco-transpile 0.15.0 writes names of a component into the generated script beside names of its own, and does not tell them apart. A
# component that exports a function memory0, exports0 or realloc0 becomes a script with a SyntaxError, and one that exports a function
# `arguments` too. Such names are valid in WIT, and Wasmtime calls the functions.
# Needs Node 24 or later, Python 3.9 or later, and network access to npm and PyPI. Exits 0 while the behaviour is as described.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund @bytecodealliance/jco-transpile@0.15.0 >/dev/null
python3 -m venv venv
venv/bin/pip install --quiet wasmtime==50.0.1
cat >transpile.mjs <<'JS'
import { mkdirSync, writeFileSync } from 'node:fs'
import { transpileBytes } from '@bytecodealliance/jco-transpile'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'

for (const name of ['measure', 'memory0', 'exports0', 'realloc0', 'arguments']) {
  const component = await parse(`(component
    (core module $m (memory (export "memory") 1)
      (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
      (func (export "f") (param i32 i32) (result i32) (local.get 1)))
    (core instance $i (instantiate $m))
    (func (export "${name}") (param "text" string) (result u32) (canon lift (core func $i "f")
      (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))`)
  writeFileSync(`${name}.wasm`, component)
  const { files } = await transpileBytes(component, { name: 'c', outDir: '.', noTypescript: true })
  mkdirSync(name)
  writeFileSync(`${name}/package.json`, '{"type":"module"}')
  for (const [path, bytes] of Object.entries(files)) writeFileSync(`${name}/${path.split('/').at(-1)}`, bytes)
  const outcome = await import(`./${name}/c.js`).then(
    (made) => `returns ${made[name]('four')}`,
    (error) => `${error.name}: ${error.message}`,
  )
  console.log(`jco-transpile ${name}: ${outcome}`)
}
JS
cat >call.py <<'PY'
import sys
from wasmtime import Engine, Store
from wasmtime.component import Component, Linker
for name in sys.argv[1:]:
    engine = Engine()
    store = Store(engine)
    instance = Linker(engine).instantiate(store, Component.from_file(engine, f"{name}.wasm"))
    print(f"wasmtime {name}: returns {instance.get_func(store, name)(store, 'four')}")
PY
echo "jco-transpile $(node -p "require('./node_modules/@bytecodealliance/jco-transpile/package.json').version"), wasmtime $(venv/bin/pip list 2>/dev/null | sed -n 's/^wasmtime *//p')"
node transpile.mjs | tee seen
venv/bin/python call.py measure memory0 exports0 realloc0 arguments | tee -a seen
diff seen - <<'TEXT'
jco-transpile measure: returns 4
jco-transpile memory0: SyntaxError: Identifier 'memory0' has already been declared
jco-transpile exports0: SyntaxError: Identifier 'exports0' has already been declared
jco-transpile realloc0: SyntaxError: Identifier 'realloc0' has already been declared
jco-transpile arguments: SyntaxError: Unexpected eval or arguments in strict mode
wasmtime measure: returns 4
wasmtime memory0: returns 4
wasmtime exports0: returns 4
wasmtime realloc0: returns 4
wasmtime arguments: returns 4
TEXT
