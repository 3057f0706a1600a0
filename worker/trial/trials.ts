/**
 * Runs modules on the machine of their author, in the runners and the isolation of a worker, without a manager. Everything
 * is in a temporary folder that `close` removes.
 */
import { randomUUID } from 'node:crypto'
import { chmod, mkdtemp, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { textOrBytes } from '#core/bytes/index.ts'
import type { TextOrBytes } from '#core/bytes/index.ts'
import { hexOf } from '#core/digest.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { validateModule } from '#guests/module-reading/index.ts'
import { DEFAULT_MODULE_BOUNDS, ModuleRefusal, readModuleKind } from '#guests/wasm/index.ts'
import type { DescribedExport, DescribedImport, Json } from '#guests/wasm/index.ts'
import { monotonicMs } from '#core/time.ts'
import { establishIsolation } from '../isolation/index.ts'
import type { Isolation } from '../isolation/index.ts'
import { createRunnerPool, stageRunnerCode } from '../runner/index.ts'
import type { OutputName, RunOutcome, RunnerPool } from '../runner/index.ts'
import { Components, stageTranspilerCode } from '../transpile/index.ts'
import { MemoryState } from '#guests/calls/index.ts'
import { GuestChannel } from './guest-channel.ts'
import type { ChannelRules, Publication, TriedRecord } from './guest-channel.ts'

export type TriedModule = {
  /** The name of a task that has this module: the file without `.wasm`. */
  name: string
  kind: 'core' | 'component'
  digest: string
  bytes: number
  exports: DescribedExport[]
  imports: DescribedImport[]
  /** The copy of the file that runs; the file can change meanwhile. */
  path: string
}

export type TrialCall = {
  /** Empty: as for a task without `function`. */
  functionName: string
  inputs: Json[]
  args: string[]
  env: Record<string, string>
  stdin: TextOrBytes
  bytesAsBase64: boolean
  memoryLimitBytes: number
  timeoutMs: number
  /** What reads of channels return. */
  records: readonly TriedRecord[]
}

/** `prepareMs`: from the request to the start of the call, which compiles the module. */
export type TrialReport = {
  state: 'completed' | 'failed' | 'stopped'
  reason?: string
  error?: string
  frames?: readonly string[]
  results?: unknown
  stdout: TextOrBytes
  stderr: TextOrBytes
  isOutputTruncated: boolean
  memoryBytes: number | undefined
  prepareMs: number
  durationMs: number
  publications: readonly Publication[]
  publicationCount: number
  /** The state of the task after the run; only of a run that wrote to it. */
  kept?: MemoryState['entries']
}

/** The limit of a task without `max_output_bytes`. */
const MAX_OUTPUT_BYTES = 1024 * 1024
/** The domain of the runs: one author, so any text. */
const DOMAIN = 'trial'
const TASK_ID = '00000000-0000-0000-0000-000000000000'
/** A runner that does not start is tried again this often. */
const MAX_REQUEUES = 3

export class Trials {
  readonly #folder: string
  readonly #isolation: Isolation
  readonly #pool: RunnerPool
  readonly #rules: ChannelRules
  /** Runs of one program share it, as those of one task do. */
  readonly #state = new MemoryState()
  #components: Promise<Components> | undefined

  private constructor(folder: string, isolation: Isolation, pool: RunnerPool, rules: ChannelRules) {
    this.#folder = folder
    this.#isolation = isolation
    this.#pool = pool
    this.#rules = rules
  }

  static async open({ rules, logger }: { rules: ChannelRules; logger: Logger }): Promise<Trials> {
    // Runners have users of their own where this process is root: they must be able to enter.
    const folder = await mkdtemp(join(tmpdir(), 'skein-try-'))
    try {
      await chmod(folder, 0o755)
      await mkdir(join(folder, 'modules'), { mode: 0o700 })
      const [isolation, codeFolder] = await Promise.all([
        establishIsolation({ required: 'process', folder }),
        stageRunnerCode(join(folder, 'runner')),
      ])
      const { maxModuleBytes } = DEFAULT_MODULE_BOUNDS
      const pool = createRunnerPool({
        slots: 1,
        runners: 1,
        codeFolder,
        isolation,
        maxModuleBytes,
        allowGc: false,
        logger,
      })
      return new Trials(folder, isolation, pool, rules)
    } catch (error) {
      await rm(folder, { recursive: true, force: true })
      throw error
    }
  }

  get isolation(): Isolation['level'] {
    return this.#isolation.level
  }

  /**
   * Reads a file and checks it as an upload is checked. Throws `malformed` for a module that an upload refuses, with its
   * message, and `not_found` if the file cannot be read.
   */
  async load(file: string, memoryLimitBytes: number): Promise<TriedModule> {
    const given = await readBounded(file, DEFAULT_MODULE_BOUNDS.maxModuleBytes)
    try {
      if (readModuleKind(given) === 'component') this.#warm()
      const { kind, digest, bytes, exports, imports } = await validateModule(given, DOMAIN, memoryLimitBytes)
      const path = join(this.#folder, 'modules', `${hexOf(digest)}.wasm`)
      await writeFile(path, bytes)
      const name = basename(file).replace(/\.wasm$/, '')
      return { name, kind, digest, bytes: bytes.length, exports, imports, path }
    } catch (error) {
      if (error instanceof ModuleRefusal) throw new ServiceError('malformed', error.message, { cause: error })
      throw error
    }
  }

  async run(module: TriedModule, call: TrialCall, signal: AbortSignal): Promise<TrialReport> {
    const channel = new GuestChannel(this.#rules, call.records, this.#state)
    const streamed: Record<OutputName, Buffer[]> = { stdout: [], stderr: [] }
    const requestedMs = monotonicMs()
    let startedMs: number | undefined
    const outcome = await this.#execute(module, call, {
      channel,
      onOutput: (output, data) => streamed[output].push(Buffer.from(data)),
      onStarted: () => (startedMs ??= monotonicMs()),
      signal,
    })
    if (outcome.state === 'requeue') throw new ServiceError('unavailable', outcome.cause)
    const isCall = outcome.state !== 'stopped'
    if (isCall) this.#state.write(outcome.stateEntries ?? [])
    const outputOf = (name: OutputName) =>
      (isCall ? outcome[name] : undefined) ?? textOrBytes(Buffer.concat(streamed[name]))
    return {
      state: outcome.state,
      ...(outcome.state === 'failed'
        ? { reason: outcome.reason, error: outcome.error, frames: outcome.frames ?? [] }
        : {}),
      ...(isCall && outcome.results !== undefined ? { results: outcome.results } : {}),
      stdout: outputOf('stdout'),
      stderr: outputOf('stderr'),
      isOutputTruncated: isCall && outcome.isOutputTruncated === true,
      memoryBytes: isCall ? outcome.memoryBytes : undefined,
      prepareMs: (startedMs ?? monotonicMs()) - requestedMs,
      durationMs: outcome.durationMs,
      publications: channel.publications,
      publicationCount: channel.publicationCount,
      ...(isCall && outcome.stateEntries !== undefined ? { kept: this.#state.entries } : {}),
    }
  }

  async close(): Promise<void> {
    const components = await this.#components?.catch(() => undefined)
    await Promise.all([this.#pool.close(), components?.close()])
    await rm(this.#folder, { recursive: true, force: true })
  }

  async #execute(module: TriedModule, call: TrialCall, { channel, signal, ...hooks }: Hooks): Promise<RunOutcome> {
    const { functionName, inputs, args, env, stdin, bytesAsBase64, memoryLimitBytes, timeoutMs } = call
    const request = {
      domain: DOMAIN,
      digest: module.digest,
      modulePath: module.path,
      moduleBytes: module.bytes,
      componentFolder: module.kind === 'component' ? await this.#transpile(module, signal) : undefined,
      timeoutMs,
      call: {
        functionName,
        programName: module.name,
        inputs,
        args,
        env: { ...env, TASK_ID, RUN_ID: randomUUID(), ATTEMPT: '1' },
        stdin,
        bytesAsBase64,
        memoryLimitBytes,
        maxOutputBytes: MAX_OUTPUT_BYTES,
      },
      onGuestCall: (_callId: number, asked: Parameters<GuestChannel['answer']>[0]) =>
        Promise.resolve(channel.answer(asked)),
      ...hooks,
    }
    for (let attempt = 1; ; attempt++) {
      const outcome = await this.#pool.run(request, signal)
      if (outcome.state !== 'requeue' || attempt === MAX_REQUEUES) return outcome
    }
  }

  async #transpile({ digest, path }: TriedModule, signal: AbortSignal): Promise<string | undefined> {
    this.#components ??= this.#openComponents()
    return await (await this.#components).prepare(digest, path, { domainId: DOMAIN, signal })
  }

  /** The transpiler is loaded while the module is checked. */
  #warm(): void {
    this.#components ??= this.#openComponents()
    // A failure is the error of the run.
    this.#components.then(
      (components) => components.warm(),
      () => undefined,
    )
  }

  async #openComponents(): Promise<Components> {
    const codeFolder = await stageTranspilerCode(join(this.#folder, 'transpiler'))
    const folder = join(this.#folder, 'modules', 'components')
    return await Components.open({ isolation: this.#isolation, folder, codeFolder }, [])
  }
}

type Hooks = {
  channel: GuestChannel
  onOutput: (output: OutputName, data: Uint8Array) => void
  onStarted: () => void
  signal: AbortSignal
}

async function readBounded(file: string, maxBytes: number): Promise<Uint8Array<ArrayBuffer>> {
  try {
    const { size } = await stat(file)
    if (size > maxBytes)
      throw new ServiceError('too_large', `the file has ${size} bytes, at most ${maxBytes} are accepted`)
    // A copy of its own: the buffer is moved to another thread.
    return new Uint8Array(await readFile(file))
  } catch (error) {
    if (error instanceof ServiceError) throw error
    throw new ServiceError('not_found', `cannot read ${file}: ${(error as Error).message}`, { cause: error })
  }
}
