/** Refusals of unsupported imports, with the cure where the toolchain that emits the import is known. */
import { STATE_VERSIONS } from './state.ts'
import { WASI_PREVIEW1_MODULE } from './wasi-preview1.ts'
import { WASI_PREVIEW2_DENIED, WASI_PREVIEW2_FUNCTIONS } from './wasi-preview2.ts'

/** The number of imports that an error names. */
const MAX_NAMED_IMPORTS = 10

/** `starts`: of the import as it is named in the refusal. The first match counts. */
const REMEDIES: readonly { starts: readonly string[]; cure: string }[] = [
  {
    starts: ['env.abort '],
    cure: 'AssemblyScript: compile with --use abort=, or with --config of @assemblyscript/wasi-shim',
  },
  {
    starts: ['env.seed ', 'env.trace ', 'env.console.', 'env.Date.', 'env.performance.', 'env.crypto.'],
    cure: 'AssemblyScript: compile with --config of @assemblyscript/wasi-shim',
  },
  { starts: ['gojs.', 'go.'], cure: 'Go: build with GOOS=wasip1 GOARCH=wasm' },
  {
    starts: ['wbg.', './', '__wbindgen'],
    cure: 'Rust: build for wasm32-wasip1 without wasm-bindgen',
  },
  { starts: ['wasi.thread-spawn '], cure: 'compile without threads: each run has one thread' },
  {
    starts: ['env.memory '],
    cure: 'link without --import-memory and without threads: the module must define its memory',
  },
  { starts: ['env.emscripten_', 'a.'], cure: 'Emscripten: link with -sSTANDALONE_WASM' },
  { starts: ['wasi_unstable.'], cure: `compile with a toolchain for ${WASI_PREVIEW1_MODULE}` },
  { starts: ['env.'], cure: 'link the library that defines it; it is an undefined symbol of the program' },
]

/** One sentence about all unsupported imports. */
export function describeUnoffered(unoffered: readonly string[]): string {
  const named = unoffered.slice(0, MAX_NAMED_IMPORTS).join(', ')
  const more = unoffered.length > MAX_NAMED_IMPORTS ? ` and ${unoffered.length - MAX_NAMED_IMPORTS} more` : ''
  const cures = new Set(unoffered.flatMap((name) => remedyOf(name) ?? servedVersions(name) ?? []))
  return `the module has unsupported imports: ${named}${more}${[...cures].map((cure) => ` (${cure})`).join('')}`
}

const WASI_INTERFACE = /^wasi:[^@#]+@[^#]+$/
const SERVED = [
  ...new Set(
    [...Object.keys(WASI_PREVIEW2_FUNCTIONS), ...WASI_PREVIEW2_DENIED].map((name) => name.split('/')[0] ?? name),
  ),
].toSorted((a, b) => a.localeCompare(b))

/** What a component with another version or package of WASI could import. */
function servedVersions(unoffered: string): string | undefined {
  if (!WASI_INTERFACE.test(unoffered)) return undefined
  return `WASI is served in the versions 0.2.x: ${SERVED.join(', ')}; wasi:keyvalue in ${STATE_VERSIONS.join(' and ')}`
}

function remedyOf(unoffered: string): string | undefined {
  return REMEDIES.find(({ starts }) => starts.some((start) => unoffered.startsWith(start)))?.cure
}
