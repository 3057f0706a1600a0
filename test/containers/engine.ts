/**
 * The reference deployment in containers: a copy of docker-compose.yml and deploy/ that `docker-compose` starts, on the engine that
 * `run.sh` provides.
 */
import { execFile } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { processEnvironment } from '#core/config/index.ts'
import { until } from '../harness/until.ts'
import { ROOT, prepare } from '../programs/deployment-files.ts'
import type { Prepared } from '../programs/deployment-files.ts'

const PROJECT = 'skein'
/** The file for `replace`, in the folder of the deployment. */
const REPLACING = 'replacing.yml'
const CALL_DEADLINE_MS = 30_000
const COMPOSE_DEADLINE_MS = 180_000
const HEALTHY_DEADLINE_MS = 60_000
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024
/** Without systemd, podman checks no container by itself. */
const CHECK_PAUSE_MS = 500

/** Why no container can be started here; undefined if they can. */
export function reasonAgainst(): string | undefined {
  const reason = processEnvironment()['CONTAINERS_SKIPPED']
  return reason === undefined ? 'npm run containers' : reason === '' ? undefined : reason
}

/** What the engine says about a container, as far as the tests ask. */
export type Container = {
  Id: string
  Name: string
  RestartCount: number
  State: { Status: string; Pid: number; Health?: { Status: string } }
  Config: { Env: string[]; User: string }
  HostConfig: {
    ReadonlyRootfs: boolean
    Memory: number
    NanoCpus: number
    PidsLimit: number
    RestartPolicy: { Name: string }
  }
}

const run = promisify(execFile)

/** The file, without limits of open files that are above what this machine allows: only CAP_SYS_RESOURCE could raise it. */
function withinLimits(compose: string): string {
  const allowed = /^Max open files +\d+ +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]
  return compose.replaceAll(/^ +ulimits: \{ nofile: (\d+) \}\n/gm, (line, wanted: string) =>
    Number(wanted) > Number(allowed) ? '' : line,
  )
}

/**
 * The file for a command that leaves the networks as they are: docker-compose 1.29 takes an option that podman adds to an address pool for
 * a change of the file.
 */
function withNetworks(compose: string): string {
  return compose.replaceAll(
    /^ {2}(\w+):\n {4}ipam:\n {6}config: .*\n/gm,
    `  $1: { external: true, name: ${PROJECT}_$1 }\n`,
  )
}

/** Sends a request to the engine. */
async function ask(method: string, path: string): Promise<{ status: number; text: string }> {
  const socketPath = new URL(processEnvironment()['DOCKER_HOST'] ?? '').pathname
  return await new Promise((resolve, reject) => {
    const sent = request({ socketPath, method, path, signal: AbortSignal.timeout(CALL_DEADLINE_MS) }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
      response.once('end', () => resolve({ status: response.statusCode ?? 0, text })).once('error', reject)
    })
    sent.once('error', reject).end()
  })
}

export class Deployment implements AsyncDisposable {
  readonly prepared: Prepared
  readonly services: readonly string[]
  /** Milliseconds from the command to the last healthy container. */
  startedInMs = 0

  readonly #files: readonly string[]

  private constructor(prepared: Prepared, services: readonly string[], files: readonly string[]) {
    this.prepared = prepared
    this.services = services
    this.#files = files
  }

  /** Starts every service of docker-compose.yml and of the file that extends it, and waits until all containers are healthy. */
  static async start(hostName: string, services: readonly string[], extension?: string): Promise<Deployment> {
    const prepared = await prepare(hostName)
    const compose = withinLimits(readFileSync(join(ROOT, 'docker-compose.yml'), 'utf8'))
    writeFileSync(join(prepared.folder, 'docker-compose.yml'), compose)
    writeFileSync(join(prepared.folder, REPLACING), withNetworks(compose))
    const deployment = new Deployment(prepared, services, [
      'docker-compose.yml',
      ...(extension === undefined ? [] : [extension]),
    ])
    const since = performance.now()
    try {
      await until(async () => (await ask('GET', '/_ping').catch(() => undefined))?.status === 200, 'the engine answers')
      // It starts a service when those that the service depends on are healthy.
      const starting = deployment.compose('up', '--detach', '--no-build')
      await Promise.all([starting, deployment.#checkUntil(starting)])
      for (const service of services) await deployment.untilHealthy(service)
      deployment.startedInMs = performance.now() - since
      return deployment
    } catch (error) {
      const states = await Promise.all(
        services.map(async (service) => {
          const found = await deployment.inspect(service).catch(() => undefined)
          const log = await deployment.log(service).catch(String)
          return `${service}: ${JSON.stringify(found?.State)}\n${log.split('\n').slice(-20).join('\n')}`
        }),
      )
      process.stdout.write(`${states.join('\n\n')}\n`)
      await deployment[Symbol.asyncDispose]()
      throw error
    }
  }

  /** `docker-compose` in the folder of the deployment, with the secrets of deploy/prepare.sh. */
  async compose(...args: string[]): Promise<string> {
    return await this.#composeWith(this.#files, ...args)
  }

  async #composeWith(files: readonly string[], ...args: string[]): Promise<string> {
    const given = ['--env-file', 'deploy/skein.env', '-p', PROJECT, ...files.flatMap((file) => ['-f', file])]
    const { stdout, stderr } = await run('docker-compose', [...given, ...args], {
      cwd: this.prepared.folder,
      env: { ...processEnvironment(), COMPOSE_HTTP_TIMEOUT: '120' },
      timeout: COMPOSE_DEADLINE_MS,
      maxBuffer: MAX_OUTPUT_BYTES,
    })
    return stdout + stderr
  }

  /** Replaces the container of a service by a new one, as docs/guides/upgrade.md does. */
  async replace(service: string): Promise<void> {
    await this.#composeWith([REPLACING], 'up', '--detach', '--no-build', '--no-deps', '--force-recreate', service)
  }

  async inspect(service: string): Promise<Container> {
    const { status, text } = await ask('GET', `/containers/${PROJECT}_${service}_1/json`)
    if (status !== 200) throw new Error(`${service}: ${text}`)
    return JSON.parse(text) as Container
  }

  /** The output of a command in the container of a service; throws if it fails. */
  async exec(service: string, ...command: string[]): Promise<string> {
    const { stdout } = await run('podman', ['exec', `${PROJECT}_${service}_1`, ...command], {
      timeout: CALL_DEADLINE_MS,
    })
    return stdout
  }

  async log(service: string): Promise<string> {
    const { stdout, stderr } = await run('podman', ['logs', `${PROJECT}_${service}_1`], {
      timeout: CALL_DEADLINE_MS,
      maxBuffer: MAX_OUTPUT_BYTES,
    })
    return stdout + stderr
  }

  /** Ends the first process of the container as a crash does. The engine ends the others. */
  async kill(service: string): Promise<void> {
    const { Pid: pid } = (await this.inspect(service)).State
    process.kill(pid, 'SIGKILL')
    await until(async () => (await this.inspect(service)).State.Pid !== pid, `${service} has ended`)
  }

  async untilHealthy(service: string, deadlineMs = HEALTHY_DEADLINE_MS): Promise<void> {
    await until(
      async () => {
        await this.#check(service)
        const { Status: status, Health: health } = (await this.inspect(service)).State
        return status === 'running' && health?.Status === 'healthy'
      },
      `${service} is healthy`,
      deadlineMs,
    )
  }

  /** Runs the health check of the container. One that is not there yet, or does not run, has none. */
  async #check(service: string): Promise<void> {
    await ask('GET', `/v4.0.0/libpod/containers/${PROJECT}_${service}_1/healthcheck`).catch(() => undefined)
  }

  /** Runs the health checks of all containers again and again, until the promise settles. */
  async #checkUntil(end: Promise<unknown>): Promise<void> {
    let isOver = false
    const over = end.then(
      () => (isOver = true),
      () => (isOver = true),
    )
    while (!isOver) {
      for (const service of this.services) if (!isOver) await this.#check(service)
      await Promise.race([over, new Promise((resolve) => setTimeout(resolve, CHECK_PAUSE_MS))])
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.compose('down', '--volumes', '--timeout', '1').finally(() => this.prepared[Symbol.dispose]())
  }
}
