/** Composes the adapter: the backend of the profile, listeners, and notification of changed entities. */
import type { DeviceTopics, MessageGate } from '#api/devices/index.ts'
import type { Journal } from '#api/identity/index.ts'
import type { Messages } from '#api/messages/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Metrics, SharedPorts, TlsFiles } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { isLoopbackHost } from '#core/loopback.ts'
import type { StreamBudget } from '#core/streams/index.ts'
import { ConformanceBackend } from './conformance.ts'
import type { MqttConfig } from './config.ts'
import { PlatformBackend } from './platform/backend.ts'
import type { PlatformBackendDeps } from './platform/backend.ts'
import type { ClientOf } from './listeners.ts'
import { MqttServer } from './server.ts'

export type MqttOptions = {
  config: MqttConfig
  host: string
  /** Set where several processes open the same ports. */
  sharedPorts?: SharedPorts | undefined
  /** SKEIN_TRUST_PROXY: their PROXY protocol header is trusted. */
  trustProxy?: readonly string[] | undefined
  /** The limit of one whole message. */
  maxBodyBytes: number
  /** Undefined: no TLS. */
  tls?: TlsFiles | undefined
  clientOf?: ClientOf | undefined
  gate: MessageGate
  topics: DeviceTopics
  messages: Messages
  journal: Journal
  startStore: PlatformBackendDeps['startStore']
  /** The budget of bytes that wait for subscribers. */
  budget: StreamBudget
  metrics?: Metrics | undefined
  logger: Logger
}

/** The bytes of a packet besides the payload: fixed header, topic, properties. */
const MAX_OVERHEAD_BYTES = 128 * 1024

/** Its ports are opened by `listen`. Throws `malformed` for the conformance profile on a public address. */
export async function startMqtt(options: MqttOptions): Promise<MqttServer> {
  const { config, host, sharedPorts, trustProxy, maxBodyBytes, tls, clientOf, journal, budget, metrics, logger } =
    options
  const isBare = config.mqttProfile === 'conformance'
  if (isBare && !isLoopbackHost(host))
    throw new ServiceError(
      'malformed',
      'SKEIN_MQTT_PROFILE=conformance accepts every client: set SKEIN_HOST to 127.0.0.1, or leave the profile out',
    )
  let endDisabledSessions: ((entityKeys: readonly number[]) => void) | undefined
  const server = await MqttServer.start({
    host,
    port: config.mqttPort === 0 ? undefined : config.mqttPort,
    tls: tls === undefined || config.mqttsPort === 0 ? undefined : { port: config.mqttsPort, files: tls, clientOf },
    sharedPorts,
    trustProxy,
    maxPacketBytes: maxBodyBytes + MAX_OVERHEAD_BYTES,
    backend(sessions) {
      if (isBare) return new ConformanceBackend(sessions)
      const backend = new PlatformBackend(options, sessions)
      endDisabledSessions = (entityKeys) => backend.endDisabledSessions(entityKeys)
      return backend
    },
    budget,
    metrics,
    logger,
  })
  if (!isBare) {
    journal.listen({
      invalidate(entityKeys) {
        endDisabledSessions?.(entityKeys)
        server.recheck(entityKeys)
      },
      invalidateAll: () => server.recheck(undefined),
    })
  }
  return server
}
