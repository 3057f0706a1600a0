/**
 * Builds the modules of `examples/` from their sources: text with wabt, AssemblyScript with asc, C with clang, JavaScript
 * with componentize-js. The last one has 300 MB and is not a dependency: `COMPONENTIZE_DIR` names a folder where it was
 * installed with `npm install --prefix FOLDER @bytecodealliance/componentize-js`.
 */
import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import wabt from 'wabt'

const run = promisify(execFile)
const root = fileURLToPath(new URL('../', import.meta.url))

const TEXT_EXAMPLES = ['add', 'endless', 'memory-eater', 'table-bomb']
const CLANG_HINT = 'clang for wasm32 is missing (Debian: apt-get install clang lld wasi-libc libclang-rt-14-dev-wasm32)'
const COMPONENTIZE_HINT =
  'COMPONENTIZE_DIR must name a folder after: npm install --prefix FOLDER @bytecodealliance/componentize-js'

async function buildText(name: string): Promise<void> {
  const source = `${root}examples/${name}/${name}.wat`
  const library = await wabt()
  const module = library.parseWat(source, await readFile(source, 'utf8'))
  await writeFile(`${root}examples/${name}/${name}.wasm`, module.toBinary({}).buffer)
  module.destroy()
}

async function buildAssemblyScript(name: string): Promise<void> {
  const folder = `${root}examples/${name}`
  const asc = `${root}node_modules/assemblyscript/bin/asc.js`
  // Without a runtime and assertions the only imports are those of the source.
  const options = ['--runtime', 'stub', '--optimize', '--noAssert', '--use', 'abort=']
  await run(process.execPath, [asc, `${folder}/assembly/index.ts`, ...options, '--outFile', `${folder}/${name}.wasm`])
}

async function buildC(name: string, options: string[]): Promise<void> {
  const folder = `${root}examples/${name}`
  await run('clang', ['-O2', '-Wl,--strip-all', ...options, '-o', `${folder}/${name}.wasm`, `${folder}/${name}.c`])
}

type Componentize = (options: Record<string, unknown>) => Promise<{ component: Uint8Array }>

async function buildJavaScript(name: string): Promise<void> {
  const folder = `${root}examples/${name}`
  const installed = process.env['COMPONENTIZE_DIR']
  if (installed === undefined) throw new Error('componentize-js has no version')
  const tool = `${installed}/node_modules/@bytecodealliance/componentize-js/src/componentize.js`
  const { componentize } = (await import(tool)) as { componentize: Componentize }
  const { component } = await componentize({
    sourcePath: `${folder}/${name}.js`,
    witPath: `${folder}/wit`,
    worldName: name,
    // Disables features that no task can be granted, so that the component imports only what it uses.
    disableFeatures: ['random', 'stdio', 'clocks', 'http', 'fetch-event'],
  })
  await writeFile(`${folder}/${name}.wasm`, component)
}

/** Reports a missing compiler, and the other examples are still built. */
async function attempt(name: string, hint: string, build: Promise<void>): Promise<void> {
  try {
    await build
  } catch (error) {
    process.stderr.write(`${name} was not built: ${error instanceof Error ? error.message : String(error)}\n${hint}\n`)
    process.exitCode = 1
  }
}

for (const name of TEXT_EXAMPLES) await buildText(name)
for (const name of ['fibonacci', 'threshold-alarm']) await buildAssemblyScript(name)
await attempt('hello', CLANG_HINT, buildC('hello', ['--target=wasm32-wasi', '--sysroot=/usr']))
const withoutLibrary = ['--target=wasm32', '-nostdlib', '-Wl,--no-entry']
await attempt('moving-average', CLANG_HINT, buildC('moving-average', withoutLibrary))
await attempt('unit-conversion', COMPONENTIZE_HINT, buildJavaScript('unit-conversion'))
