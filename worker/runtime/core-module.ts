/** Runs one function of a compiled core module in a new instance, and says how it ended. Knows no process and no thread. */
import {
  COMMAND_FUNCTION,
  WASI_PREVIEW1_MODULE,
  findFunction,
  formatType,
  isCallableFromJson,
  parseInputs,
  presentResult,
} from '#core/wasm/index.ts'
import type { DescribedExport, JsonNumber, ModuleDescription } from '#core/wasm/index.ts'
import { BoundedOutput } from './bounded-output.ts'
import { ProcessExit, createWasiHost } from './wasi-preview1.ts'
import type { WasiHost } from './wasi-preview1.ts'

export type FailureReason = 'timeout' | 'oom' | 'trap' | 'guest_error' | 'module_invalid' | 'no_such_function'

/** What a command leaves behind. */
export type CommandResults = { exit_code: number; stdout: string; stderr: string }
export type RunResults = JsonNumber[] | CommandResults

/** How a call ended by itself. stdout and stderr are there when the module could write them. */
export type CallOutcome = {
  stdout?: string
  stderr?: string
  isOutputTruncated?: boolean
} & (
  | { state: 'completed'; results: RunResults }
  | { state: 'failed'; reason: FailureReason; error: string; results?: RunResults }
)

export type Call = {
  functionName: string
  taskName: string
  inputs: JsonNumber[]
  /** Without argv[0]. */
  args: string[]
  env: Record<string, string>
  stdin: string
  memoryLimitBytes: number
  maxOutputBytes: number
}

export type CompiledModule = {
  module: WebAssembly.Module
  description: ModuleDescription
  needsWasi: boolean
  hasMemory: boolean
  /** See `LimitedModule`. */
  growFlag: string | undefined
}

/** More of a guest's error text is of no use to a reader. */
const MAX_ERROR_CHARACTERS = 1_000

/** An outcome, and how much memory the instance leaves to be collected. */
export type CallReport = { outcome: CallOutcome; memoryBytes: number }

/** Never throws: whatever the guest does is an outcome. */
export function callFunction(compiled: CompiledModule, call: Call): CallReport {
  const target = chooseFunction(compiled, call)
  if ('reason' in target) return { outcome: failed(target.reason, target.error), memoryBytes: 0 }
  const { chosen } = target
  const values = parseInputs(call.inputs, chosen.params, chosen.name)
  if ('refused' in values) return { outcome: failed('guest_error', values.refused), memoryBytes: 0 }
  if (!compiled.needsWasi) return execute({ compiled, chosen, values, host: undefined, call })

  const stdout = new BoundedOutput(call.maxOutputBytes)
  const stderr = new BoundedOutput(call.maxOutputBytes)
  const args = [call.taskName, ...call.args]
  const stdin = new TextEncoder().encode(call.stdin)
  const host = createWasiHost({ args, env: call.env, stdin, stdout, stderr })
  const { outcome, memoryBytes, exitCode } = execute({ compiled, chosen, values, host, call })
  const output = {
    stdout: stdout.text(),
    stderr: stderr.text(),
    isOutputTruncated: stdout.isTruncated || stderr.isTruncated,
  }
  if (exitCode === undefined) return { outcome: { ...outcome, ...output }, memoryBytes }
  const results = { exit_code: exitCode, stdout: output.stdout, stderr: output.stderr }
  if (exitCode === 0) return { outcome: { ...output, state: 'completed', results }, memoryBytes }
  const error = `${chosen.name} ended with exit code ${exitCode}`
  return { outcome: { ...output, ...failed('guest_error', error), results }, memoryBytes }
}

type Execution = {
  compiled: CompiledModule
  chosen: DescribedExport
  values: (number | bigint)[]
  host: WasiHost | undefined
  call: Call
}

/** `exitCode` is there when the guest is a command or called `proc_exit`: then it decides, not the outcome. */
function execute(execution: Execution): CallReport & { exitCode?: number } {
  const { compiled, chosen, call } = execution
  const isCommand = chosen.name === COMMAND_FUNCTION
  let instance: WebAssembly.Instance | undefined
  const report = (outcome: CallOutcome) => ({ outcome, memoryBytes: memoryBytesOf(instance, compiled, call) })
  try {
    instance = instantiate(execution)
    const initialize = instance.exports['_initialize']
    if (typeof initialize === 'function' && !isCommand) initialize()
    const called = instance.exports[chosen.name] as (...values: (number | bigint)[]) => unknown
    const returned = called(...execution.values)
    if (isCommand) return { ...report({ state: 'completed', results: [] }), exitCode: 0 }
    return report({ state: 'completed', results: presentResults(returned, chosen) })
  } catch (error) {
    if (error instanceof ProcessExit) {
      return { ...report({ state: 'completed', results: [] }), exitCode: Number(error.code) >>> 0 }
    }
    return report(explainFailure(error, wasRefusedMemory(instance, compiled), call.memoryLimitBytes))
  }
}

/** For the collector: a memory that is not exported cannot be seen and counts as full. */
function memoryBytesOf(instance: WebAssembly.Instance | undefined, compiled: CompiledModule, call: Call): number {
  if (!compiled.hasMemory) return 0
  return exportedMemoryBytes(instance) || call.memoryLimitBytes
}

function wasRefusedMemory(instance: WebAssembly.Instance | undefined, compiled: CompiledModule): boolean {
  if (compiled.growFlag === undefined) return false
  const flag = instance?.exports[compiled.growFlag]
  return flag instanceof WebAssembly.Global && flag.value === 1
}

function exportedMemoryBytes(instance: WebAssembly.Instance | undefined): number {
  const memory = Object.values(instance?.exports ?? {}).find((exported) => exported instanceof WebAssembly.Memory)
  return memory?.buffer.byteLength ?? 0
}

function instantiate({ compiled, host }: Execution): WebAssembly.Instance {
  if (host === undefined) return new WebAssembly.Instance(compiled.module, {})
  const instance = new WebAssembly.Instance(compiled.module, { [WASI_PREVIEW1_MODULE]: host.imports })
  host.bind(instance)
  return instance
}

function presentResults(returned: unknown, chosen: DescribedExport): JsonNumber[] {
  if (chosen.results.length === 0) return []
  const values = chosen.results.length === 1 ? [returned] : [...(returned as Iterable<unknown>)]
  return values.map(presentResult)
}

type Choice = { chosen: DescribedExport } | { reason: FailureReason; error: string }

function chooseFunction(compiled: CompiledModule, call: Call): Choice {
  const { exports } = compiled.description
  const chosen = findFunction(exports, { explicit: call.functionName, fallback: call.taskName })
  if (chosen === undefined) {
    const names = exports.filter((exported) => exported.kind === 'function').map((exported) => exported.name)
    const wanted = call.functionName === '' ? 'no default function' : `no function ${JSON.stringify(call.functionName)}`
    const offered = names.length === 0 ? 'no functions at all' : names.slice(0, 20).join(', ')
    return { reason: 'no_such_function', error: clip(`the module exports ${wanted}; it exports ${offered}`) }
  }
  if (isCallableFromJson(chosen)) return { chosen }
  return {
    reason: 'no_such_function',
    error: `${chosen.name} has the type ${formatType(chosen)}, which JSON cannot call`,
  }
}

function explainFailure(error: unknown, wasRefused: boolean, memoryLimitBytes: number): CallOutcome {
  const message = clip(error instanceof Error ? error.message : String(error))
  if (error instanceof WebAssembly.LinkError || error instanceof WebAssembly.CompileError) {
    return failed('module_invalid', message)
  }
  if (error instanceof WebAssembly.RuntimeError) {
    // A guest that could not get more memory ends itself with `unreachable`: what failed it is the limit.
    if (wasRefused) return failed('oom', `${message}, after it was refused memory beyond ${memoryLimitBytes} bytes`)
    return failed('trap', message)
  }
  if (error instanceof WebAssembly.Exception) {
    return failed('guest_error', 'the guest threw an exception that it did not catch')
  }
  // A stack that overflows in compiled code is a RangeError of the engine; so is a memory that cannot be allocated.
  if (error instanceof RangeError) {
    return message.includes('call stack') ? failed('trap', 'call stack exhausted') : failed('oom', message)
  }
  return failed('trap', message)
}

function failed(reason: FailureReason, error: string): { state: 'failed'; reason: FailureReason; error: string } {
  return { state: 'failed', reason, error }
}

function clip(text: string): string {
  return text.length > MAX_ERROR_CHARACTERS ? `${text.slice(0, MAX_ERROR_CHARACTERS)}…` : text
}
