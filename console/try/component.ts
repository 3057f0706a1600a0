/** The thread of a trial of a component, which begins with this file and then passes the function of the transpiled script. */
import { LoadedComponent } from '#guests/calls/index.ts'
import type { ComponentCore, Instantiate } from '#guests/calls/index.ts'
import type { RunComponent, TryAnswer, TryReport } from './protocol.ts'
import { MEMORY_LIMIT_BYTES, exportsOf, runCalls, textOf } from './trial.ts'

declare global {
  /** Called with the value of the transpiled script. */
  var startComponent: (instantiate: Instantiate) => void
}

globalThis.startComponent = (instantiate) => {
  addEventListener('message', ({ data }: MessageEvent<RunComponent>) => {
    void run(instantiate, data).then(
      (report) => postMessage({ report } satisfies TryAnswer),
      (error: unknown) => postMessage({ failure: textOf(error) } satisfies TryAnswer),
    )
  })
}

async function run(instantiate: Instantiate, { request, cores: files }: RunComponent): Promise<TryReport> {
  const beganMs = performance.now()
  const cores: ComponentCore[] = []
  for (const [name, bytes] of files)
    cores.push({ name, module: await WebAssembly.compile(bytes), memoryLimitBytes: MEMORY_LIMIT_BYTES })
  const compileMs = performance.now() - beganMs
  const component = new LoadedComponent({
    exports: exportsOf(request),
    cores,
    evaluate: () => instantiate,
    deferrals: () => 0,
  })
  return { ...runCalls(request, (call, host) => component.call(call, host)), compileMs }
}
