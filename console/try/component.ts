/**
 * One run of a transpiled component in a thread, which begins with this file and then passes the function of the transpiled
 * script. Types, values and WASI are those of a worker.
 */
import { ComponentExit, createWasiPreview2 } from '#core/wasi/index.ts'
import type { Interfaces } from '#core/wasi/index.ts'
import { camelCase, fromComponentValue, isCommand, parseInputs, parseWitType } from '#core/wasm/index.ts'
import type { Json } from '#core/wasm/index.ts'
import { GuestOutput, createMessaging } from './messaging.ts'
import type { Messaging, Refusal } from './messaging.ts'
import { MAX_OUTCOMES_BYTES } from './protocol.ts'
import type { GuestCall, GuestOutcome, RunComponent, TryAnswer, TryReport } from './protocol.ts'

type Instantiate = (
  getCore: (name: string) => WebAssembly.Module,
  imports: Interfaces,
  instantiateCore: (module: WebAssembly.Module, imports: WebAssembly.Imports) => WebAssembly.Instance,
) => Record<string, unknown>

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

async function run(instantiate: Instantiate, { request, cores }: RunComponent): Promise<TryReport> {
  const beganMs = performance.now()
  const modules = new Map<string, WebAssembly.Module>()
  for (const [name, bytes] of cores) modules.set(name, await WebAssembly.compile(bytes))
  const compileMs = performance.now() - beganMs
  const outputs = { stdout: new GuestOutput(), stderr: new GuestOutput() }
  const messaging = createMessaging(request.records)
  const outcomes: GuestOutcome[] = []
  let memoryBytes = 0
  let bytes = 0
  for (const call of request.calls) {
    const callBeganMs = performance.now()
    const memories = new Set<WebAssembly.Memory>()
    const start = () => {
      const wasi = createWasiPreview2({
        args: [...request.args],
        env: request.env,
        stdin: new TextEncoder().encode(call.stdin),
        ...outputs,
        clock: { nowNs, waitFor },
        beforeWait: () => undefined,
      })
      // Two versions of one interface are the same here.
      const imports = new Proxy({ ...wasi, ...interfacesOf(messaging) } as Interfaces, {
        get: (known, name) => (typeof name === 'string' ? known[name.split('@')[0] ?? ''] : undefined),
      })
      const getCore = (name: string) => modules.get(name) ?? raise(`the component has no core module ${name}`)
      return instantiate(getCore, imports, (module, coreImports) => {
        const instance = new WebAssembly.Instance(module, coreImports)
        for (const one of Object.values(instance.exports)) if (one instanceof WebAssembly.Memory) memories.add(one)
        return instance
      })
    }
    const outcome = callOnce(start, request, call)
    outcomes.push({ ...outcome, durationMs: performance.now() - callBeganMs })
    memoryBytes = Math.max(
      memoryBytes,
      [...memories].reduce((sum, { buffer }) => sum + buffer.byteLength, 0),
    )
    bytes += JSON.stringify(outcome).length
    if (bytes > MAX_OUTCOMES_BYTES) throw new Error('the results are larger than 1 MiB')
  }
  return {
    outcomes,
    stdout: outputs.stdout.text(),
    stderr: outputs.stderr.text(),
    ...messaging.seen(),
    memoryBytes,
    compileMs,
  }
}

function callOnce(
  start: () => Record<string, unknown>,
  { functionName, params, results }: RunComponent['request'],
  call: GuestCall,
): Omit<GuestOutcome, 'durationMs'> {
  const isEntry = isCommand({ name: functionName })
  const [resultType] = results
  const present = (value: unknown, part: 'ok' | 'err'): Json => {
    if (resultType === undefined) return null
    const type = parseWitType(resultType)
    // Transpiled code returns the `ok` of a result and throws its `err`.
    const own = type.kind === 'result' ? type[part] : type
    return own === undefined ? null : fromComponentValue(value, own)
  }
  try {
    const values = parseInputs(call.inputs as Json[], params, functionName)
    if ('refused' in values) return { error: values.refused }
    const returned = findCallable(start(), functionName)(...values)
    return { results: isEntry ? { exit_code: 0 } : present(returned, 'ok') }
  } catch (error) {
    if (error instanceof ComponentExit)
      return error.code === 0 ? { results: { exit_code: 0 } } : { error: `the exit code is ${error.code}` }
    if (error instanceof Error && error.constructor.name === 'ComponentError' && 'payload' in error)
      return {
        error: isEntry
          ? 'the exit code is 1'
          : `${functionName} returned an error: ${JSON.stringify(present(error.payload, 'err'))}`,
      }
    return { error: textOf(error) }
  }
}

function findCallable(exported: Record<string, unknown>, name: string): (...values: unknown[]) => unknown {
  const [first = '', second] = name.split('#')
  const holder = second === undefined ? exported : (exported[first] as Record<string, unknown> | undefined)
  const found = holder?.[camelCase(second ?? first)]
  if (typeof found !== 'function') return raise(`the component does not export ${name}`)
  return found.bind(holder) as (...values: unknown[]) => unknown
}

function interfacesOf({ publish, read }: Messaging): Interfaces {
  const decoder = new TextDecoder()
  const accept = (answer: string | undefined | Refusal): string => {
    // oxlint-disable-next-line typescript/only-throw-error -- `err` in transpiled components
    if (typeof answer === 'object') throw answer
    return answer ?? ''
  }
  return {
    'skein:messaging/types': {},
    'skein:messaging/producer': {
      send: (topic: string, payload: Uint8Array) => void accept(publish(topic, decoder.decode(payload))),
    },
    'skein:messaging/reader': {
      read: (topic: string, query: { name?: string; from?: number; to?: number; limit: number }) =>
        new TextEncoder().encode(accept(read({ ...query, topic }))),
    },
  }
}

const nowNs = () => BigInt(Math.round(performance.now() * 1e6))

/** Without cross-origin isolation there is no shared memory to wait on. The thread has a deadline. */
function waitFor(waitNs: bigint): void {
  const untilNs = nowNs() + waitNs
  while (nowNs() < untilNs);
}

function raise(message: string): never {
  throw new Error(message)
}

const textOf = (error: unknown) => (error instanceof Error ? error.message : String(error))
