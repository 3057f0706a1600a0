/** One run of a core module in a thread: a new instance for each call, as on a worker. */
import { WASIProcExit } from '@bjorn3/browser_wasi_shim'
import { createHost } from './host.ts'
import { MAX_OUTCOMES_BYTES } from './protocol.ts'
import type { GuestCall, GuestOutcome, TryAnswer, TryReport, TryRequest } from './protocol.ts'

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
  const host = createHost(request)
  const outcomes: GuestOutcome[] = []
  let memoryBytes = 0
  let bytes = 0
  for (const call of request.calls) {
    const [outcome, memory] = await callOnce(module, request, call, host)
    memoryBytes = Math.max(memoryBytes, memory)
    outcomes.push(outcome)
    bytes += JSON.stringify(outcome).length
    if (bytes > MAX_OUTCOMES_BYTES) throw new Error('the results are larger than 1 MiB')
  }
  return { outcomes, ...host.seen(), memoryBytes, compileMs }
}

async function callOnce(
  module: WebAssembly.Module,
  request: TryRequest,
  call: GuestCall,
  host: ReturnType<typeof createHost>,
): Promise<[GuestOutcome, number]> {
  const isCommand = request.functionName === '_start'
  let instance: WebAssembly.Instance | undefined
  const beganMs = performance.now()
  const ended = (outcome: Omit<GuestOutcome, 'durationMs'>): [GuestOutcome, number] => {
    const memory = instance?.exports['memory']
    return [
      { ...outcome, durationMs: performance.now() - beganMs },
      memory instanceof WebAssembly.Memory ? memory.buffer.byteLength : 0,
    ]
  }
  try {
    const { imports, bind } = host.instance(call.stdin)
    instance = await WebAssembly.instantiate(module, imports)
    bind(instance)
    const { exports } = instance
    const initialize = exports['_initialize']
    if (!isCommand && typeof initialize === 'function') (initialize as () => void)()
    const callee = exports[request.functionName]
    if (typeof callee !== 'function') throw new Error(`the module has no function ${request.functionName}`)
    const inputs = call.inputs.map((input, index) =>
      request.params[index] === 'i64' ? BigInt(input as string) : input,
    )
    const returned = (callee as (...given: unknown[]) => unknown)(...inputs)
    if (isCommand) return ended({ results: { exit_code: 0 } })
    const values = request.results.length === 0 ? [] : Array.isArray(returned) ? returned : [returned]
    return ended({ results: values.map((value) => shown(value)) })
  } catch (error) {
    if (!(error instanceof WASIProcExit)) return ended({ error: textOf(error) })
    const code = error.code
    return ended(code === 0 ? { results: { exit_code: 0 } } : { error: `the exit code is ${code}` })
  }
}

/** Numbers that JSON cannot hold are texts. */
function shown(value: unknown): unknown {
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? Number(value) : value.toString()
  return typeof value === 'number' && !Number.isFinite(value) ? String(value) : value
}

const textOf = (error: unknown) => (error instanceof Error ? error.message : String(error))
