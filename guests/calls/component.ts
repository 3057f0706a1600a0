/**
 * Runs one function of a transpiled component in new instances of its core modules, and returns its outcome. The
 * transpiled code is a script whose value is a function (see `guests/transpiler/`); the caller compiles it.
 */
import { ComponentExit, createWasiHttp, createWasiPreview2 } from '../wasi/index.ts'
import type { Interfaces, SendHttp } from '../wasi/index.ts'
import { camelCase, fromComponentValue, isCommand, parseWitType } from '../wasm/index.ts'
import type { BytesForm, DescribedExport } from '../wasm/index.ts'
import { chooseFunction } from './choose-function.ts'
import type { Call } from './call.ts'
import { CallStreams } from './call-streams.ts'
import type { GuestHost } from './guest-host.ts'
import { sendHttp } from './http.ts'
import { componentMessaging } from './messaging.ts'
import { GuestState, stateOf } from './state.ts'
import { componentState } from './state-functions.ts'
import { explainFailure, failed } from './outcome.ts'
import type { CallOutcome, CallReport, GuestMemory } from './outcome.ts'

/** A core module of a component with its name in the transpiled code, and the limit of its own memory. */
export type ComponentCore = { name: string; module: WebAssembly.Module; memoryLimitBytes: number }

/** The value of a transpiled script. */
export type Instantiate = (
  getCore: (name: string) => WebAssembly.Module,
  imports: Interfaces,
  instantiateCore: (module: WebAssembly.Module, imports: WebAssembly.Imports) => WebAssembly.Instance,
) => Record<string, unknown>

export type ComponentParts = {
  exports: DescribedExport[]
  cores: readonly ComponentCore[]
  /** Evaluates the script, whose function creates instances that may share what it has defined, if they are used one after the other. */
  evaluate: () => Instantiate
  /** How often code of the script has deferred anything, with a timer or to the end of the turn. */
  deferrals: () => number
}

/** A component in a thread: each call has instances of its own. */
export class LoadedComponent {
  readonly #parts: ComponentParts
  #instantiate: Instantiate | undefined

  constructor(parts: ComponentParts) {
    this.#parts = parts
  }

  /** Never throws: every failure of the guest is an outcome. */
  call(call: Call, guestHost: GuestHost): CallReport {
    const choice = chooseFunction(this.#parts.exports, call)
    if ('outcome' in choice) return { outcome: choice.outcome, memoryBytes: 0 }
    const { chosen, values } = choice
    const streams = new CallStreams(call, guestHost)
    const state = new GuestState(guestHost)
    const interfaces = { ...createWasiPreview2(streams.wasi), ...componentMessaging(guestHost) }
    const instances: Instances = new Map()
    const deferrals = this.#parts.deferrals()
    const ended = this.#execute({
      chosen,
      values,
      interfaces,
      state,
      send: (request) => sendHttp(guestHost, request),
      instances,
      bytes: call.bytesAsBase64 ? 'base64' : 'array',
      lastLines: () => streams.lastLines(),
    })
    // Deferred code runs later, and must not meet the next call.
    if (this.#parts.deferrals() !== deferrals) this.#instantiate = undefined
    const memories = memoriesOf(instances)
    const memoryBytes = memories.reduce((sum, { bytes }) => sum + bytes, 0)
    const outcome = typeof ended === 'number' ? streams.exited(chosen.name, ended, memories) : streams.withOutput(ended)
    return { outcome, memoryBytes, ...stateOf(state, outcome) }
  }

  /** A number: the exit code of a command. */
  #execute(execution: Execution): CallOutcome | number {
    const { chosen, values, instances, bytes } = execution
    try {
      const called = findCallable(this.#start(execution), chosen.name)
      const returned = called(...values)
      if (isCommand(chosen)) return 0
      return { state: 'completed', results: presentReturned(returned, chosen, bytes) }
    } catch (error) {
      if (error instanceof ComponentExit) return error.code
      if (isErr(error)) {
        return isCommand(chosen) ? 1 : explainErr(error.payload, chosen, bytes)
      }
      // It was left in the middle.
      this.#instantiate = undefined
      if (isErrorOfScript(error)) return failed('module_invalid', `${SCRIPT_FAILED}: ${error.message}`)
      return explainFailure(error, memoriesOf(instances), execution.lastLines())
    }
  }

  #start({ interfaces, state, send, instances }: Execution): Record<string, unknown> {
    const modules = new Map(this.#parts.cores.map(({ name, module }) => [name, module]))
    const limits = new Map(this.#parts.cores.map(({ module, memoryLimitBytes }) => [module, memoryLimitBytes]))
    const getCore = (name: string) => {
      const module = modules.get(name)
      if (module === undefined) throw new WebAssembly.LinkError(`the component has no core module ${name}`)
      return module
    }
    // The transpiler omits versions of imports; two versions of one interface are the same here.
    let ofState: Interfaces | undefined
    let ofHttp: Interfaces | undefined
    const imports = new Proxy(interfaces, {
      get(known, name) {
        if (typeof name !== 'string') return undefined
        const [base = ''] = name.split('@')
        // Most components have no state, and send no requests.
        if (base.startsWith('wasi:keyvalue/')) return (ofState ??= componentState(state))[base]
        if (base.startsWith('wasi:http/')) return (ofHttp ??= createWasiHttp(send))[base]
        return known[base]
      },
    })
    this.#instantiate ??= this.#parts.evaluate()
    return this.#instantiate(getCore, imports, (module, coreImports) => {
      const instance = new WebAssembly.Instance(module, coreImports)
      instances.set(instance, limits.get(module) ?? 0)
      return instance
    })
  }
}

/** The instances in the order of instantiation, each with the limit of its own memory. */
type Instances = Map<WebAssembly.Instance, number>
type Execution = {
  chosen: DescribedExport
  values: unknown[]
  interfaces: Interfaces
  state: GuestState
  send: SendHttp
  instances: Instances
  /** The form of lists of `u8` in the result. */
  bytes: BytesForm
  /** The end of the guest's error output. */
  lastLines: () => string
}

function findCallable(exported: Record<string, unknown>, name: string): (...values: unknown[]) => unknown {
  const [first = '', second] = name.split('#')
  const holder = second === undefined ? exported : (exported[first] as Record<string, unknown> | undefined)
  const found = holder?.[camelCase(second ?? first)]
  if (typeof found !== 'function') throw new WebAssembly.LinkError(`the transpiled component does not export ${name}`)
  return found.bind(holder) as (...values: unknown[]) => unknown
}

const SCRIPT_FAILED = 'the script of the transpiled component is wrong, which is no fault of the component'

/** Errors that only JavaScript can have: the script throws those of the component as errors of its own, with other messages. */
function isErrorOfScript(error: unknown): error is Error {
  if (error instanceof ReferenceError || error instanceof SyntaxError) return true
  return (
    error instanceof TypeError &&
    /is not (a function|a constructor|defined)|^Cannot read properties/.test(error.message)
  )
}

/** The `err` of a returned result, which transpiled code throws. */
function isErr(error: unknown): error is { payload: unknown } {
  return error instanceof Error && error.constructor.name === 'ComponentError' && Object.hasOwn(error, 'payload')
}

function presentReturned(returned: unknown, chosen: DescribedExport, bytes: BytesForm) {
  const [text] = chosen.results
  if (text === undefined) return null
  const type = parseWitType(text)
  // Transpiled code returns the `ok` of a result and throws its `err`.
  if (type.kind !== 'result') return fromComponentValue(returned, type, bytes)
  return type.ok === undefined ? null : fromComponentValue(returned, type.ok, bytes)
}

function explainErr(payload: unknown, chosen: DescribedExport, bytes: BytesForm): CallOutcome {
  const type = parseWitType(chosen.results[0] ?? 'result')
  const err = type.kind === 'result' && type.err !== undefined ? fromComponentValue(payload, type.err, bytes) : null
  const text = typeof err === 'string' ? err : JSON.stringify(err)
  return { ...failed('guest_error', `${chosen.name} returned an error: ${text}`), results: { err } }
}

/** Each memory once, with the limit of the instance that created it: later instances can export it again. */
function memoriesOf(instances: Instances): GuestMemory[] {
  const limits = new Map<WebAssembly.Memory, number>()
  for (const [instance, limitBytes] of instances) {
    for (const exported of Object.values(instance.exports)) {
      if (exported instanceof WebAssembly.Memory && !limits.has(exported)) limits.set(exported, limitBytes)
    }
  }
  return [...limits].map(([memory, limitBytes]) => ({ bytes: memory.buffer.byteLength, limitBytes }))
}
