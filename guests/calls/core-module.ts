/**
 * Runs one function of a compiled core module in a new instance, and returns its outcome. Independent of processes and
 * threads.
 */
import { COMMAND_FUNCTION, MESSAGING_MODULE, WASI_PREVIEW1_MODULE, presentResult } from '../wasm/index.ts'
import type { DescribedExport, JsonNumber, ModuleDescription } from '../wasm/index.ts'
import type { Call } from './call.ts'
import { CallStreams } from './call-streams.ts'
import { chooseFunction } from './choose-function.ts'
import type { GuestHost } from './guest-host.ts'
import { CoreMemory } from './core-memory.ts'
import { coreHttp } from './http.ts'
import { coreMessaging } from './messaging.ts'
import { explainFailure } from './outcome.ts'
import type { CallOutcome, CallReport, GuestMemory } from './outcome.ts'
import { GuestState, stateOf } from './state.ts'
import { coreState } from './state-functions.ts'
import { ProcessExit, createWasiHost } from './wasi-preview1.ts'
import type { HostFunctions, WasiHost } from './wasi-preview1.ts'

export type CompiledModule = {
  kind: 'core'
  module: WebAssembly.Module
  description: ModuleDescription
  /** The module has imports. */
  needsHost: boolean
  hasMemory: boolean
}

/** Never throws: every failure of the guest is an outcome. */
export function callFunction(compiled: CompiledModule, call: Call, guestHost: GuestHost): CallReport {
  const choice = chooseFunction(compiled.description.exports, call)
  if ('outcome' in choice) return { outcome: choice.outcome, memoryBytes: 0 }
  const { chosen, values } = choice
  // A command has an exit code, even without imports.
  if (!compiled.needsHost && chosen.name !== COMMAND_FUNCTION) {
    return execute({ compiled, chosen, values, host: undefined, call, lastLines: () => '' })
  }

  const streams = new CallStreams(call, guestHost)
  const wasi = createWasiHost(streams.wasi, compiled.description.imports)
  const memory = new CoreMemory(wasi.memory)
  const state = new GuestState(guestHost)
  const host = {
    wasi,
    skein: { ...coreMessaging(guestHost, memory), ...coreState(state, memory), ...coreHttp(guestHost, memory) },
  }
  const { outcome, memoryBytes, exit } = execute({
    compiled,
    chosen,
    values,
    host,
    call,
    lastLines: () => streams.lastLines(),
  })
  const ended = exit === undefined ? streams.withOutput(outcome) : streams.exited(chosen.name, exit.code, exit.memories)
  return { outcome: ended, memoryBytes, ...stateOf(state, ended) }
}

type Execution = {
  compiled: CompiledModule
  chosen: DescribedExport
  values: unknown[]
  host: { wasi: WasiHost; skein: HostFunctions } | undefined
  call: Call
  /** The end of the guest's error output. */
  lastLines: () => string
}

/** `exit` is present if the guest is a command or called `proc_exit`: then it determines the outcome. */
function execute(execution: Execution): CallReport & { exit?: { code: number; memories: GuestMemory[] } } {
  const { compiled, chosen, call } = execution
  const isCommand = chosen.name === COMMAND_FUNCTION
  let instance: WebAssembly.Instance | undefined
  const report = (outcome: CallOutcome) => ({ outcome, memoryBytes: memoryBytesOf(instance, compiled, call) })
  const memories = () => [{ bytes: exportedMemoryBytes(instance), limitBytes: call.memoryLimitBytes }]
  const exited = (code: number) => ({
    ...report({ state: 'completed', results: [] }),
    exit: { code, memories: memories() },
  })
  try {
    instance = instantiate(execution)
    const initialize = instance.exports['_initialize']
    if (typeof initialize === 'function' && !isCommand) initialize()
    const called = instance.exports[chosen.name] as (...values: unknown[]) => unknown
    const returned = called(...execution.values)
    if (isCommand) return exited(0)
    return report({ state: 'completed', results: presentResults(returned, chosen) })
  } catch (error) {
    if (error instanceof ProcessExit) return exited(Number(error.code) >>> 0)
    return report(explainFailure(error, memories(), execution.lastLines()))
  }
}

/** Returns the size of the memory for the garbage collector. A memory that is not exported is invisible and counts as full. */
function memoryBytesOf(instance: WebAssembly.Instance | undefined, compiled: CompiledModule, call: Call): number {
  if (!compiled.hasMemory) return 0
  return exportedMemoryOf(instance)?.buffer.byteLength ?? call.memoryLimitBytes
}

/** 0 while the module exports no memory, or none was created. */
function exportedMemoryBytes(instance: WebAssembly.Instance | undefined): number {
  return exportedMemoryOf(instance)?.buffer.byteLength ?? 0
}

function exportedMemoryOf(instance: WebAssembly.Instance | undefined): WebAssembly.Memory | undefined {
  return Object.values(instance?.exports ?? {}).find((exported) => exported instanceof WebAssembly.Memory)
}

function instantiate({ compiled, host }: Execution): WebAssembly.Instance {
  if (host === undefined) return new WebAssembly.Instance(compiled.module, {})
  const { wasi, skein } = host
  const instance = new WebAssembly.Instance(compiled.module, {
    [WASI_PREVIEW1_MODULE]: wasi.imports,
    [MESSAGING_MODULE]: skein,
  })
  wasi.bind(instance)
  return instance
}

function presentResults(returned: unknown, chosen: DescribedExport): JsonNumber[] {
  if (chosen.results.length === 0) return []
  const values = chosen.results.length === 1 ? [returned] : [...(returned as Iterable<unknown>)]
  return values.map(presentResult)
}
