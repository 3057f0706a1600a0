/** Puts the adapter together: the exchange of the profile, listeners, and the way in which changes of entities reach it. */
import type { MessageGate } from '#api/devices/index.ts'
import type { Journal } from '#api/identity/index.ts'
import type { Messages } from '#api/messages/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Metrics, TlsFiles } from '#core/http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { isLoopbackHost } from '#core/loopback.ts'
import type { StreamBudget } from '#core/streams/index.ts'
import { BareExchange } from './bare.ts'
import type { MqttConfig } from './config.ts'
import { PlatformExchange } from './platform/exchange.ts'
import type { PlatformExchangeDeps } from './platform/exchange.ts'
import type { ClientOf } from './listeners.ts'
import { MqttServer } from './server.ts'

export type MqttOptions = {
  config: MqttConfig
  host: string
  /** Of one message, whole. */
  maxBodyBytes: number
  /** Undefined: no TLS. */
  tls?: TlsFiles | undefined
  clientOf?: ClientOf | undefined
  gate: MessageGate
  messages: Messages
  journal: Journal
  startStore: PlatformExchangeDeps['startStore']
  /** What waits for subscribers counts there. */
  budget: StreamBudget
  metrics?: Metrics | undefined
  logger: Logger
}

/** What stands around the payload of a message: fixed header, topic, properties. */
const MAX_OVERHEAD_BYTES = 128 * 1024

/** Undefined: both ports are off. Throws `malformed` for the conformance profile on an address that others reach. */
export async function startMqtt(options: MqttOptions): Promise<MqttServer> {
  const { config, host, maxBodyBytes, tls, clientOf, journal, budget, metrics, logger } = options
  const isBare = config.mqttProfile === 'conformance'
  if (isBare && !isLoopbackHost(host))
    throw new ServiceError(
      'malformed',
      'SKEIN_MQTT_PROFILE=conformance lets anybody in: set SKEIN_HOST to 127.0.0.1, or leave the profile out',
    )
  let forget: ((entityKeys: readonly number[]) => void) | undefined
  const server = await MqttServer.start({
    host,
    port: config.mqttPort === 0 ? undefined : config.mqttPort,
    tls: tls === undefined || config.mqttsPort === 0 ? undefined : { port: config.mqttsPort, files: tls, clientOf },
    maxPacketBytes: maxBodyBytes + MAX_OVERHEAD_BYTES,
    exchange(sessions) {
      if (isBare) return new BareExchange(sessions)
      const exchange = new PlatformExchange(options, sessions)
      forget = (entityKeys) => exchange.forget(entityKeys)
      return exchange
    },
    budget,
    metrics,
    logger,
  })
  if (!isBare) {
    journal.listen({
      forget(entityKeys) {
        forget?.(entityKeys)
        server.recheck(entityKeys)
      },
      clear: () => server.recheck(undefined),
    })
  }
  return server
}
