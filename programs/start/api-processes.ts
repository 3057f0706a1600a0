/** Several processes of the platform under a supervisor, which is the program that was started. */
import { availableParallelism } from 'node:os'
import type { Api, DevicePorts } from '#api/index.ts'
import type { CoapConfig, MqttConfig } from '#api/config.ts'
import type { Environment } from '#core/config/index.ts'
import type { ForwardedRoutes, HttpConfig } from '#http/index.ts'
import type { EmbeddedServer } from '#infrastructure/index.ts'
import { entryPoint } from '#core/installation.ts'
import type { Logger } from '#core/logging/index.ts'
import { freePort, portsInUse, processCount } from '#infrastructure/processes/index.ts'
import type { Supervisor } from '#infrastructure/processes/index.ts'
import { apiPorts } from './api-ports.ts'
import type { ConsolePage } from './console.ts'

/** What one process is to do. */
export type ApiAssignment = {
  /** Processes that share this machine. */
  readonly count: number
  /** The one that serves CoAP and warns about settings. */
  readonly isFirst: boolean
  /** It reads the gauges that are the same for every process. */
  readonly hasReadings: boolean
  /** Ports that other programs used before the first process started. */
  readonly portsInUse: readonly number[]
  /** The server that the supervisor runs. */
  readonly embedded: EmbeddedServer | undefined
  /** Routes that the supervisor answers. */
  readonly elsewhere: ForwardedRoutes | undefined
  readonly consolePage: ConsolePage
}

/** The facts that a process reports when it serves. */
export type ApiFacts = DevicePorts & {
  readonly scheme: 'http' | 'https'
  /** The ports of HTTP, that of the base address first. */
  readonly ports: readonly number[]
  readonly takenPorts: readonly number[]
  readonly firstAdmin: Api['identity']['firstAdmin']
}

type Config = { http: HttpConfig; coap: CoapConfig; mqtt: MqttConfig; processes: { apiProcesses: number | 'auto' } }

/** How many processes serve the platform here. */
export function apiProcessCount({ processes, mqtt }: Config, logger: Logger): number {
  // The bare broker keeps everything in the memory of one process.
  if (mqtt.mqttProfile === 'conformance') return 1
  const place = { cores: availableParallelism(), platform: process.platform }
  return processCount(processes.apiProcesses, place, logger)
}

export type ApiProcesses = {
  /** Lets the processes serve, and resolves to the facts of all of them. Rejects when one cannot start. */
  serve(rest: Pick<ApiAssignment, 'embedded' | 'elsewhere' | 'hasReadings' | 'consolePage'>): Promise<ApiFacts>
}

/** Starts the processes, which load their code and wait for `serve`. */
export async function launchApiProcesses(
  supervisor: Supervisor,
  {
    count,
    config,
    environment,
    showsProgress,
  }: { count: number; config: Config; environment: Environment; showsProgress: boolean },
): Promise<ApiProcesses> {
  const { host } = config.http
  // One port for all of them, also where any free one will do.
  const httpPort = config.http.httpPort === 0 ? await freePort(host) : config.http.httpPort
  const http = { ...config.http, httpPort }
  const { mqttPort, mqttsPort } = config.mqtt
  const wanted = [...apiPorts({ http, coap: config.coap }).map(({ port }) => port), mqttPort, mqttsPort]
  const inUse = await portsInUse(host, wanted)
  const given = Promise.withResolvers<Omit<ApiAssignment, 'isFirst'>>()
  supervisor.launch({
    count,
    entry: entryPoint('programs/api-process.ts'),
    environment,
    settings: { SKEIN_HTTP_PORT: String(httpPort) },
    showsProgress,
    async assignmentOf(name): Promise<ApiAssignment> {
      const assignment = await given.promise
      const isFirst = name === '1'
      return { ...assignment, isFirst, hasReadings: assignment.hasReadings && isFirst }
    },
  })
  return {
    async serve(rest) {
      given.resolve({ ...rest, count, portsInUse: inUse })
      const facts = await supervisor.started<ApiFacts>()
      const first = facts.find(({ coapPort }) => coapPort !== undefined) ?? facts[0]
      if (first === undefined) throw new Error('no process serves')
      // One of them created the administrator.
      const creator = facts.find(({ firstAdmin }) => firstAdmin.createdSecret !== undefined) ?? first
      return { ...first, firstAdmin: creator.firstAdmin }
    },
  }
}
