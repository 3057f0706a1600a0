/**
 * Modules by language: the first and the second start of a function, and a loop beside the same bytes in a bare Node. Compilers
 * are those on the path (docs/guides/modules); a language without its compiler is left out.
 */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { WASI } from 'node:wasi'
import { createLogger } from '#core/logging/index.ts'
import { readModuleKind } from '#guests/wasm/index.ts'
import { Trials } from '#worker/trial/index.ts'
import type { TriedModule } from '#worker/trial/index.ts'
import { median, milliseconds, printTable } from './statistics.ts'
import type { Row } from './statistics.ts'

const REPEATS = 5
const MEMORY_BYTES = 128 * 1024 * 1024
const TIMEOUT_MS = 120_000
/** Steps of a call of `block`, which is a function of its own: see "One long loop" in docs/guides/write-a-module.md. */
const BLOCK_STEPS = 1_000
const COMPILED_BLOCKS = 100_000
/** JavaScript and Python are interpreted. */
const INTERPRETED_BLOCKS = 100

type Language = { name: string; blocks: number; files: Record<string, string>; build: string }

const WIT = 'package bench:loop@0.1.0;\nworld bench { export loop: func(blocks: s32) -> s32; }\n'

const LANGUAGES: readonly Language[] = [
  {
    name: 'C',
    blocks: COMPILED_BLOCKS,
    files: {
      'loop.c': `__attribute__((noinline)) static unsigned block(unsigned x) {
  for (int i = 0; i < ${BLOCK_STEPS}; i++) { x ^= x << 13; x ^= x >> 17; x ^= x << 5; }
  return x;
}
int loop(int blocks) { unsigned x = 1; for (int i = 0; i < blocks; i++) x = block(x); return x; }
`,
    },
    build: 'clang --target=wasm32-wasi --sysroot=/usr -O2 -mexec-model=reactor -Wl,--export=loop -o loop.wasm loop.c',
  },
  {
    name: 'C++',
    blocks: COMPILED_BLOCKS,
    files: {
      'loop.cpp': `__attribute__((noinline)) static unsigned block(unsigned x) {
  for (int i = 0; i < ${BLOCK_STEPS}; i++) { x ^= x << 13; x ^= x >> 17; x ^= x << 5; }
  return x;
}
extern "C" int loop(int blocks) { unsigned x = 1; for (int i = 0; i < blocks; i++) x = block(x); return x; }
`,
    },
    build:
      'clang++ --target=wasm32-wasi --sysroot=/usr -O2 -fno-exceptions -mexec-model=reactor -Wl,--export=loop -o loop.wasm loop.cpp',
  },
  {
    name: 'Go',
    blocks: COMPILED_BLOCKS,
    files: {
      'loop.go': `package main

//go:noinline
func block(x uint32) uint32 {
	for i := 0; i < ${BLOCK_STEPS}; i++ { x ^= x << 13; x ^= x >> 17; x ^= x << 5 }
	return x
}

//go:wasmexport loop
func loop(blocks int32) int32 {
	x := uint32(1)
	for i := int32(0); i < blocks; i++ { x = block(x) }
	return int32(x)
}

func main() {}
`,
    },
    build: 'GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o loop.wasm loop.go',
  },
  {
    name: 'Rust',
    blocks: COMPILED_BLOCKS,
    files: {
      'loop.rs': `#[inline(never)]
fn block(mut x: u32) -> u32 {
    for _ in 0..${BLOCK_STEPS} { x ^= x << 13; x ^= x >> 17; x ^= x << 5; }
    x
}
#[no_mangle]
pub extern "C" fn r#loop(blocks: i32) -> i32 { (0..blocks).fold(1u32, |x, _| block(x)) as i32 }
`,
    },
    build: 'rustc --edition 2021 --target wasm32-unknown-unknown --crate-type cdylib -O loop.rs -o loop.wasm',
  },
  {
    name: 'Zig',
    blocks: COMPILED_BLOCKS,
    files: {
      'loop.zig': `noinline fn block(start: u32) u32 {
    var x = start;
    for (0..${BLOCK_STEPS}) |_| { x ^= x << 13; x ^= x >> 17; x ^= x << 5; }
    return x;
}
export fn loop(blocks: i32) i32 {
    var x: u32 = 1;
    var i: i32 = 0;
    while (i < blocks) : (i += 1) x = block(x);
    return @bitCast(x);
}
`,
    },
    build: 'zig build-exe loop.zig -target wasm32-freestanding -O ReleaseFast -fno-entry -rdynamic',
  },
  {
    name: 'AssemblyScript',
    blocks: COMPILED_BLOCKS,
    files: {
      'loop.ts': `function block(start: u32): u32 {
  let x = start
  for (let i = 0; i < ${BLOCK_STEPS}; i++) { x ^= x << 13; x ^= x >> 17; x ^= x << 5 }
  return x
}
export function loop(blocks: i32): i32 {
  let x: u32 = 1
  for (let i = 0; i < blocks; i++) x = block(x)
  return x
}
`,
    },
    build: 'asc loop.ts --runtime stub --optimize --use abort= --outFile loop.wasm',
  },
  {
    name: 'JavaScript',
    blocks: INTERPRETED_BLOCKS,
    files: {
      'wit/world.wit': WIT,
      'loop.js': `function block(x) {
  for (let i = 0; i < ${BLOCK_STEPS}; i++) { x ^= x << 13; x ^= x >>> 17; x ^= x << 5 }
  return x
}
export function loop(blocks) {
  let x = 1
  for (let i = 0; i < blocks; i++) x = block(x)
  return x
}
`,
    },
    build:
      'componentize-js loop.js --wit wit --world-name bench --disable stdio random clocks http fetch-event -o loop.wasm',
  },
  {
    name: 'Python',
    blocks: INTERPRETED_BLOCKS,
    files: {
      'wit/world.wit': WIT,
      'app.py': `import wit_world


def block(x):
    for _ in range(${BLOCK_STEPS}):
        x ^= (x << 13) & 0xFFFFFFFF
        x ^= x >> 17
        x ^= (x << 5) & 0xFFFFFFFF
    return x


class WitWorld(wit_world.WitWorld):
    def loop(self, blocks):
        x = 1
        for _ in range(blocks):
            x = block(x)
        return x - (1 << 32) if x >> 31 else x
`,
    },
    build: 'componentize-py --wit-path wit --world bench componentize app -o loop.wasm',
  },
]

export async function benchLanguages(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'skein-bench-'))
  try {
    const rows: Row[] = []
    for (const language of LANGUAGES) rows.push(await measure(language, join(folder, language.name)))
    printTable('Modules by language', rows)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

async function measure(language: Language, folder: string): Promise<Row> {
  const { name, blocks } = language
  const file = build(language, folder)
  if (file === undefined) return { name, figure: 'not built: its compiler is missing' }
  const bytes = new Uint8Array(readFileSync(file))
  const rules = { requirePayload: () => undefined, requireStorable: () => undefined }
  const trials = await Trials.open({ rules, logger: createLogger({ name: 'bench', level: 'error' }) })
  try {
    const module = await trials.load(file, MEMORY_BYTES)
    const first = await timed(() => run(trials, module, 1))
    const second = await timed(() => run(trials, module, 1))
    const bare = readModuleKind(bytes) === 'core' ? bareLoop(bytes, blocks) : undefined
    const inWorker: number[] = []
    const bareMs: number[] = []
    // In turns, so that other load of the machine affects both.
    for (let round = 0; round < REPEATS; round++) {
      inWorker.push(await run(trials, module, blocks))
      if (bare !== undefined) bareMs.push(bare())
    }
    const nanoseconds = (median(inWorker) * 1e6) / (blocks * BLOCK_STEPS)
    return {
      name,
      figure: `${Math.round(bytes.length / 1_024)} KiB, first ${milliseconds(first)}, second ${milliseconds(second)}, ${nanoseconds.toFixed(2)} ns per step`,
      ...(bare === undefined ? {} : { ratio: `${(median(inWorker) / median(bareMs)).toFixed(2)} of a bare Node` }),
    }
  } finally {
    await trials.close()
  }
}

/** Undefined without a compiler. */
function build({ files, build: line }: Language, folder: string): string | undefined {
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), content)
  }
  try {
    execFileSync('bash', ['-e', '-c', line], { cwd: folder, stdio: 'pipe' })
    return join(folder, 'loop.wasm')
  } catch {
    return undefined
  }
}

async function timed(once: () => Promise<unknown>): Promise<number> {
  const began = performance.now()
  await once()
  return performance.now() - began
}

/** Time of the call in milliseconds. */
async function run(trials: Trials, module: TriedModule, blocks: number): Promise<number> {
  const call = {
    functionName: 'loop',
    inputs: [blocks],
    args: [],
    env: {},
    stdin: '',
    bytesAsBase64: false,
    records: [],
  }
  const limits = { memoryLimitBytes: MEMORY_BYTES, timeoutMs: TIMEOUT_MS }
  const { state, durationMs } = await trials.run(module, { ...call, ...limits }, AbortSignal.timeout(TIMEOUT_MS))
  if (state !== 'completed') throw new Error(`${module.name} ended in state ${state}`)
  return durationMs
}

/** A new instance for each call, as in a worker. */
function bareLoop(bytes: Uint8Array<ArrayBuffer>, blocks: number): () => number {
  const module = new WebAssembly.Module(bytes)
  return () => {
    const wasi = new WASI({ version: 'preview1' })
    const instance = new WebAssembly.Instance(module, { wasi_snapshot_preview1: wasi.wasiImport })
    if (instance.exports['_initialize'] !== undefined) wasi.initialize(instance)
    const loop = instance.exports['loop'] as (blocks: number) => number
    const began = performance.now()
    loop(blocks)
    return performance.now() - began
  }
}
