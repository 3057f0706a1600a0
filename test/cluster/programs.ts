/** The programs of Skein on three machines: two of each kind, started again when they end, as systemd does. */
import { randomBytes } from 'node:crypto'
import { freePorts } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { createInstallation, familyOf, launch } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { signal } from './program.ts'

const READY_DEADLINE_MS = 60_000
const PROBE_DEADLINE_MS = 2000
/** Between the end of a program and its next start; systemd's default. */
const RESTART_PAUSE_MS = 100

export class SupervisedProgram implements AsyncDisposable {
  readonly name: string
  readonly base: string
  readonly coapPort: number
  readonly mqttPort: number
  readonly grpcAddress: string
  readonly #installation: Installation
  readonly #program: string
  #process: Whole | undefined
  #running: Promise<void> | undefined
  #isOver = false
  #earlierOutput = ''

  constructor(name: string, installation: Installation) {
    const { environment, base } = installation
    this.name = name
    this.#program = `programs/${name.split(' ')[0]}.ts`
    const isManager = name.startsWith('manager')
    this.base = isManager ? `http://127.0.0.1:${environment['SKEIN_MANAGER_HTTP_PORT']}` : base
    this.#installation = { ...installation, base: this.base }
    this.coapPort = Number(environment['SKEIN_COAP_PORT'])
    this.mqttPort = Number(environment['SKEIN_MQTT_PORT'])
    this.grpcAddress = `127.0.0.1:${environment['SKEIN_MANAGER_GRPC_PORT']}`
  }

  begin(): void {
    this.#running = (async () => {
      while (!this.#isOver) {
        const started = launch(this.#installation, this.#program)
        this.#process = started
        await started.ended
        this.#earlierOutput += started.output()
        await new Promise((resolve) => setTimeout(resolve, RESTART_PAUSE_MS))
      }
    })()
  }

  async untilHealthy(): Promise<void> {
    await until(() => this.isHealthy(), `${this.name} is healthy`, READY_DEADLINE_MS).catch((error: unknown) => {
      throw new Error(`${(error as Error).message}: ${this.output}`, { cause: error })
    })
  }

  async isHealthy(): Promise<boolean> {
    const answer = await fetch(`${this.base}/health`, { signal: AbortSignal.timeout(PROBE_DEADLINE_MS) }).catch(
      () => undefined,
    )
    return answer?.status === 200
  }

  /** Of all its processes. */
  get output(): string {
    return this.#earlierOutput + (this.#process?.output() ?? '')
  }

  get call(): Whole['call'] {
    return (this.#process as Whole).call
  }

  /** With everything that it started: runners of a worker, for example. */
  kill(): void {
    for (const pid of familyOf((this.#process as Whole).pid)) signal(pid, 'SIGKILL')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true
    await this.#process?.[Symbol.asyncDispose]()
    await this.#running
    this.#installation[Symbol.dispose]()
  }
}

export type Programs = AsyncDisposable & {
  readonly api: readonly SupervisedProgram[]
  readonly managers: readonly SupervisedProgram[]
  readonly workers: readonly SupervisedProgram[]
  readonly all: readonly SupervisedProgram[]
}

/**
 * Starts everything, with the settings of the product. Resolves when all of it is ready. `environmentOf` is asked for what a program
 * gets in addition, by its name.
 */
export async function startPrograms(
  environment: Record<string, string>,
  environmentOf: (name: string) => Record<string, string>,
): Promise<Programs> {
  const shared = {
    SKEIN_SECRET_KEY: randomBytes(32).toString('base64'),
    SKEIN_WORKER_TOKEN: randomBytes(16).toString('hex'),
    SKEIN_PROXY_TOKEN: randomBytes(16).toString('hex'),
    SKEIN_API_PROCESSES: '1',
    SKEIN_WORKER_HEARTBEAT: '5s',
    SKEIN_WORKER_LEASE: '20s',
    ...environment,
  }
  const all: SupervisedProgram[] = []
  async function start(name: string, own: Record<string, string> = {}): Promise<SupervisedProgram> {
    const [coap, mqtt] = (await freePorts(2)).map(String) as [string, string]
    const ports = { SKEIN_COAP_PORT: coap, SKEIN_MQTT_PORT: mqtt }
    const settings = { ...shared, ...ports, ...own, ...environmentOf(name) }
    const program = new SupervisedProgram(name, await createInstallation(settings))
    all.push(program)
    program.begin()
    return program
  }
  async function stop(): Promise<void> {
    await Promise.all(all.map((program) => program[Symbol.asyncDispose]()))
  }
  try {
    const [proxyPort] = (await freePorts(1)).map(String) as [string]
    const proxy = { SKEIN_PROXY_ADDRESS: `127.0.0.1:${proxyPort}` }
    // The first one creates the schema.
    const api = [await start('api 1')]
    await api[0]?.untilHealthy()
    api.push(await start('api 2'))
    const managers = [await start('manager 1', proxy), await start('manager 2', proxy)]
    await start('proxy', { SKEIN_PROXY_PORT: proxyPort, SKEIN_PROXY_MANAGER_URL: managers[0]?.base ?? '' })
    for (const program of [...api, ...managers]) await program.untilHealthy()
    const addresses = managers.map(({ grpcAddress }) => grpcAddress)
    const workers = [
      await start('worker 1', { SKEIN_WORKER_MANAGER: addresses.join(',') }),
      await start('worker 2', { SKEIN_WORKER_MANAGER: addresses.toReversed().join(',') }),
    ]
    const alive = async () => {
      const answer = await managers[0]?.call('GET', '/workers?status=alive')
      return answer?.json<{ total: number }>().total === workers.length
    }
    await until(alive, 'both workers are alive', READY_DEADLINE_MS)
    return { api, managers, workers, all, [Symbol.asyncDispose]: stop }
  } catch (error) {
    await stop()
    throw error
  }
}
