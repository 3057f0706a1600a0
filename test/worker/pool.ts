/** A runner pool over the examples and hand-written modules, with a folder of its own. */
import { createHash } from 'node:crypto'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parse } from '@bytecodealliance/jco-transpile/wasm-tools'
import wabt from 'wabt'
import { createLogger } from '#core/logging/index.ts'
import { ISOLATION_LEVELS, establishIsolation } from '#worker/isolation/index.ts'
import type { IsolationLevel } from '#worker/isolation/index.ts'
import { createRunnerPool, stageRunnerCode } from '#worker/runner/index.ts'
import { Components, stageTranspilerCode } from '#worker/transpile/index.ts'
import type { RunOutcome, RunRequest, RunnerPool, RunnerPoolOptions } from '#worker/runner/index.ts'
import type { Call } from '#guests/calls/index.ts'
import { until as untilTrue } from '../harness/until.ts'

/** What a test says of a run: fields of the request and of the call within it. */
export type RunOptions = Partial<Omit<RunRequest, 'call'> & Call>

const root = fileURLToPath(new URL('../../', import.meta.url))
const MIB = 1024 * 1024

export type ExampleName = 'add' | 'fibonacci' | 'hello' | 'endless' | 'memory-eater' | 'table-bomb'

export function exampleBytes(name: ExampleName): Uint8Array {
  return readFileSync(`${root}examples/${name}/${name}.wasm`)
}

export async function moduleFromText(text: string): Promise<Uint8Array> {
  const module = (await wabt()).parseWat('test.wat', text, { exceptions: true })
  return module.toBinary({}).buffer
}

/** A component from its text. */
export const componentFromText = parse

export function digestOf(bytes: Uint8Array): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`
}

export type TestPool = {
  pool: RunnerPool
  componentsFolder: string
  level: IsolationLevel
  /** Runs an example, or bytes. */
  run: (module: ExampleName | Uint8Array, options?: RunOptions, signal?: AbortSignal) => Promise<RunOutcome>
  [Symbol.asyncDispose]: () => Promise<void>
}

/** The folder of an unpacked single file (`--unpack-only`), whose Node and code are tested instead of those of the checkout. */
const shipped = process.env['SKEIN_TEST_SHIPPED']
/** The strongest level of tests that name none. */
const strongestLevel = ISOLATION_LEVELS.find((level) => level === process.env['SKEIN_TEST_ISOLATION'])

/** The code of isolated processes: of the shipped file, else staged from source. */
async function codeOf(name: 'runner' | 'transpiler', folder: string): Promise<string> {
  if (shipped === undefined) return await (name === 'runner' ? stageRunnerCode(folder) : stageTranspilerCode(folder))
  const built = join(shipped, 'app', 'staged', name)
  const [version = ''] = readdirSync(built)
  cpSync(join(built, version), folder, { recursive: true })
  return folder
}

/** `level`: the strongest one to use; by default the strongest that works here. */
export async function startPool({
  level,
  ...options
}: Partial<RunnerPoolOptions> & { level?: IsolationLevel } = {}): Promise<TestPool> {
  // Runners have users of their own where the tests run as root: they must be able to enter.
  const folder = mkdtempSync(join(tmpdir(), 'skein-pool-'))
  const modulesFolder = join(folder, 'modules')
  mkdirSync(modulesFolder, { mode: 0o700 })
  chmodSync(folder, 0o755)
  const established = await establishIsolation({ required: 'process', strongest: level ?? strongestLevel, folder })
  const isolation = shipped === undefined ? established : { ...established, node: join(shipped, 'node') }
  const componentsFolder = join(modulesFolder, 'components')
  const components = await Components.open(
    { isolation, folder: componentsFolder, codeFolder: await codeOf('transpiler', join(folder, 'transpiler')) },
    [],
  )
  const pool = createRunnerPool({
    slots: 4,
    runners: 2,
    codeFolder: await codeOf('runner', join(folder, 'code')),
    isolation,
    maxModuleBytes: 64 * MIB,
    allowGc: false,
    logger: createLogger({ name: 'test', level: 'fatal' }),
    ...options,
  })
  return {
    pool,
    componentsFolder,
    level: isolation.level,
    async run(module, options = {}, signal) {
      const bytes = typeof module === 'string' ? exampleBytes(module) : module
      const digest = digestOf(bytes)
      const modulePath = join(modulesFolder, `${digest.slice(7)}.wasm`)
      // Once: a runner may be reading it.
      if (!existsSync(modulePath)) writeFileSync(modulePath, bytes)
      const call: Call = {
        functionName: '',
        programName: typeof module === 'string' ? module : 'run',
        inputs: [],
        args: [],
        env: {},
        stdin: '',
        bytesAsBase64: false,
        memoryLimitBytes: 64 * MIB,
        maxOutputBytes: MIB,
      }
      const ofCall = Object.entries(options).filter(([name]) => name in call)
      const others = Object.entries(options).filter(([name]) => !(name in call))
      const request: RunRequest = {
        domain: 'north',
        digest,
        modulePath,
        moduleBytes: bytes.length,
        componentFolder: await components.prepare(digest, modulePath),
        timeoutMs: 60_000,
        call: { ...call, ...Object.fromEntries(ofCall) },
        ...Object.fromEntries(others),
      }
      return pool.run(request, signal)
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([pool.close(), components.close()])
      rmSync(folder, { recursive: true })
    },
  }
}

export const until = (holds: () => boolean, deadlineMs?: number): Promise<boolean> =>
  untilTrue(holds, holds.toString(), deadlineMs)
