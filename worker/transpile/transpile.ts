/**
 * Transpiles one component, and checks the resulting script. Each step runs in a process of its own, within limits of
 * time, memory and size: the checking process has seen only the script, and neither the worker nor a runner has to parse
 * it.
 */
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { ServiceError } from '#core/errors/index.ts'
import { stageCode } from '../isolation/index.ts'
import type { StagingSpec } from '../isolation/index.ts'
import { COMPONENT_SCRIPT } from './files.ts'
import { decodeFrame } from './frame.ts'
import type { TranspiledFile } from './frame.ts'
import type { SingleUseProcess, SingleUseProcesses } from './single-use-processes.ts'

const TRANSPILE_ENTRY = 'worker/transpile/entry.ts'
const CHECK_ENTRY = 'worker/transpile/check-entry.ts'
const TRANSPILER = '@bytecodealliance/jco-transpile'
const SHIM = '@bytecodealliance/preview2-shim'
const PARSER = 'acorn'
const BINDGEN = 'js-component-bindgen-component'
/** A component of 12 MB takes 1 s on an idle core. */
const DEADLINE_MS = 60_000
const MEMORY_INTERVAL_MS = 100
const MAX_ATTEMPTS = 3
/** A component of 12 MB takes 330 MB. */
const BASE_MEMORY_BYTES = 512 * 1024 * 1024
const MEMORY_PER_BYTE = 16
/** Core modules keep their size; the code adds some hundred kilobytes. */
const MAX_EXTRA_OUTPUT_BYTES = 32 * 1024 * 1024

export const TRANSPILER_CODE = {
  name: 'transpiler',
  entries: [TRANSPILE_ENTRY, CHECK_ENTRY],
  packages: [
    {
      name: TRANSPILER,
      paths: ['.js', '.core.wasm', '.core2.wasm'].map((suffix) => `vendor/${BINDGEN}${suffix}`),
      exports: { './component': `./vendor/${BINDGEN}.js` },
    },
    // The form of the shim without host access: the transpiler is itself a component.
    { name: SHIM, paths: ['dist/browser'], exports: { './*': './dist/browser/*.js' } },
    { name: PARSER, paths: ['dist/acorn.mjs'], exports: { '.': './dist/acorn.mjs' } },
  ],
} satisfies StagingSpec

/** Stages the code of both processes below `folder` and returns its path. */
export function stageTranspilerCode(folder: string): Promise<string> {
  return stageCode(folder, TRANSPILER_CODE)
}

export type Transpilation = {
  processes: SingleUseProcesses
  /** File of the component. */
  path: string
  /** Gets the files while the script is checked; they must not be used before `transpile` resolves. */
  keep: (files: readonly TranspiledFile[]) => Promise<void>
}

/** Throws `malformed` if the component cannot be transpiled within the limits, and with the signal's reason. */
export async function transpile({ processes, path, keep }: Transpilation, signal: AbortSignal): Promise<void> {
  // Without a spare, the checking process starts while the other one works.
  processes.warm()
  const { size } = await stat(path)
  const component = { entry: TRANSPILE_ENTRY, input: () => createReadStream(path), size }
  const files = decodeFrame(await runApart(processes, component, signal))
  const script = files.find(([name]) => name === COMPONENT_SCRIPT)?.[1] ?? Buffer.alloc(0)
  const check = { entry: CHECK_ENTRY, input: () => Readable.from([script]), size: script.length }
  // Both have ended before an error is thrown: nothing writes afterwards.
  const [checked, kept] = await Promise.allSettled([runApart(processes, check, signal).then(decodeFrame), keep(files)])
  if (checked.status === 'rejected') throw checked.reason
  if (kept.status === 'rejected') throw kept.reason
}

type Work = { entry: string; input: () => Readable; size: number }

/** Runs a process on the input and returns its output. */
async function runApart(processes: SingleUseProcesses, work: Work, signal: AbortSignal): Promise<Buffer> {
  for (let attempt = 1; ; attempt++) {
    const taken = processes.take(work.entry)
    const frame = await feed(taken, work, signal)
    if (frame.length > 0) return frame
    const { isSpare, errorOutput } = taken
    if (errorOutput !== '') throw new ServiceError('malformed', `the component cannot be transpiled: ${errorOutput}`)
    // A spare without output was killed while it waited: the kernel ends such processes first.
    if (!isSpare || attempt === MAX_ATTEMPTS) return frame
  }
}

/** Gives a process its input and returns its output, empty if it wrote none. */
async function feed(
  { isolated, ended }: SingleUseProcess,
  { input, size }: Work,
  signal: AbortSignal,
): Promise<Buffer> {
  const { child } = isolated
  let refusal: string | undefined
  const end = (why?: string) => {
    refusal ??= why
    isolated.kill()
  }
  const onAbort = () => end()
  signal.addEventListener('abort', onAbort, { once: true })
  if (signal.aborted) end()
  const deadline = setTimeout(() => end(`it takes longer than ${DEADLINE_MS / 1_000} s`), DEADLINE_MS)
  const maxBytes = BASE_MEMORY_BYTES + MEMORY_PER_BYTE * size
  const memory = setInterval(() => {
    if ((isolated.residentBytes() ?? 0) > maxBytes) end(`it takes more than ${maxBytes} bytes of memory`)
  }, MEMORY_INTERVAL_MS)
  const unstartable = ended.then((error) => {
    if (error !== undefined) throw error
  })
  try {
    const [frame] = await Promise.all([
      gather(child.stdout, size + MAX_EXTRA_OUTPUT_BYTES, () => end('the output is too large')),
      // A process that exits before it has read everything breaks the pipe; its output decides.
      pipeline(input(), child.stdin).catch(() => undefined),
      unstartable,
    ])
    signal.throwIfAborted()
    if (refusal !== undefined) throw new ServiceError('malformed', `the component cannot be transpiled: ${refusal}`)
    return frame
  } finally {
    signal.removeEventListener('abort', onAbort)
    clearTimeout(deadline)
    clearInterval(memory)
  }
}

async function gather(stream: AsyncIterable<unknown>, maxBytes: number, onTooLarge: () => void): Promise<Buffer> {
  const parts: Buffer[] = []
  let bytes = 0
  for await (const part of stream) {
    bytes += (part as Buffer).length
    if (bytes > maxBytes) onTooLarge()
    else parts.push(part as Buffer)
  }
  return Buffer.concat(parts)
}
