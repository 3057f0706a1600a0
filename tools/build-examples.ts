/** Builds the modules of `examples/` from their sources: text with wabt, AssemblyScript with asc, C with clang. */
import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import wabt from 'wabt'

const run = promisify(execFile)
const root = fileURLToPath(new URL('../', import.meta.url))

const TEXT_EXAMPLES = ['add', 'endless', 'memory-eater', 'table-bomb']
const CLANG_HINT =
  'hello was not built: clang for wasm32-wasi is missing (Debian: apt-get install clang lld wasi-libc libclang-rt-14-dev-wasm32)'

async function buildText(name: string): Promise<void> {
  const source = `${root}examples/${name}/${name}.wat`
  const library = await wabt()
  const module = library.parseWat(source, await readFile(source, 'utf8'))
  await writeFile(`${root}examples/${name}/${name}.wasm`, module.toBinary({}).buffer)
  module.destroy()
}

async function buildFibonacci(): Promise<void> {
  const folder = `${root}examples/fibonacci`
  const asc = `${root}node_modules/assemblyscript/bin/asc.js`
  await run(process.execPath, [
    asc,
    `${folder}/assembly/index.ts`,
    '--runtime',
    'stub',
    '--optimize',
    '--noAssert',
    '--outFile',
    `${folder}/fibonacci.wasm`,
  ])
}

/** False when there is no compiler that can do it. */
async function buildHello(): Promise<boolean> {
  const folder = `${root}examples/hello`
  const options = ['--target=wasm32-wasi', '--sysroot=/usr', '-O2', '-Wl,--strip-all']
  try {
    await run('clang', [...options, '-o', `${folder}/hello.wasm`, `${folder}/hello.c`])
    return true
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n${CLANG_HINT}\n`)
    return false
  }
}

for (const name of TEXT_EXAMPLES) await buildText(name)
await buildFibonacci()
if (!(await buildHello())) process.exitCode = 1
