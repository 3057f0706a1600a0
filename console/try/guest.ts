/** The thread of a trial of a core module. */
import { callFunction, recordGuestFrames } from '#guests/calls/index.ts'
import type { CompiledModule } from '#guests/calls/index.ts'
import type { DescribedImport } from '#guests/wasm/index.ts'
import type { TryAnswer, TryReport, TryRequest } from './protocol.ts'
import { exportsOf, runCalls, textOf } from './trial.ts'

recordGuestFrames()
addEventListener('message', ({ data }: MessageEvent<TryRequest>) => {
  void run(data).then(
    (report) => postMessage({ report } satisfies TryAnswer),
    (error: unknown) => postMessage({ failure: textOf(error) } satisfies TryAnswer),
  )
})

async function run(request: TryRequest): Promise<TryReport> {
  const beganMs = performance.now()
  const module = await WebAssembly.compile(request.module)
  const compileMs = performance.now() - beganMs
  const imports = WebAssembly.Module.imports(module).map((wanted): DescribedImport => {
    return { module: wanted.module, name: wanted.name, kind: wanted.kind, params: [], results: [] }
  })
  const compiled: CompiledModule = {
    kind: 'core',
    module,
    description: { exports: exportsOf(request), imports },
    needsHost: imports.length > 0,
    // A memory that is not exported cannot be measured.
    hasMemory: WebAssembly.Module.exports(module).some(({ kind }) => kind === 'memory'),
  }
  return { ...runCalls(request, (call, host) => callFunction(compiled, call, host)), compileMs }
}
