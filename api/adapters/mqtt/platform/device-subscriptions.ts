/**
 * Subscriptions of devices on topics of their own (`c/<domain>/…`). They follow no channel: the service of the topic sends to them while
 * their session has a connection, and begins again with the next one. So their messages are not stored with the session.
 */
import type { DeviceSubscription, DeviceTopics } from '#api/devices/index.ts'
import { formatDeviceTopic } from '#api/devices/index.ts'
import { ApplicationMessage } from '../application-message.ts'
import { NO_PROPERTIES } from '../packets/properties.ts'
import type { LogBatch, Session, SessionHost, Subscription } from '../session.ts'
import type { DeviceFilter } from '../targets.ts'

/** No channel has this key. */
export const DEVICE_STREAM = 0

/** The batch of messages that no changelog contains. */
const UNCOUNTED: LogBatch = { token: '', pending: 0 }

export class DeviceSubscriptions {
  readonly #topics: DeviceTopics
  readonly #host: Pick<SessionHost, 'failed'>
  readonly #open = new Map<Subscription, DeviceSubscription>()

  constructor(topics: DeviceTopics, host: Pick<SessionHost, 'failed'>) {
    this.#topics = topics
    this.#host = host
  }

  /** Begins when the session has its connection: messages with QoS 0 are not kept for it. */
  begin(subscription: Subscription): void {
    const { session, device } = subscription
    if (device === undefined) return
    if (session.outlet !== undefined) this.#begin(subscription, device)
    else
      session.whenConnected(() => {
        if (session.subscriptions.get(subscription.filter) === subscription) this.#begin(subscription, device)
      })
  }

  end(subscription: Subscription): void {
    this.#open.get(subscription)?.close()
    this.#open.delete(subscription)
  }

  #begin(subscription: Subscription, { device, topic }: DeviceFilter): void {
    const { session, qos, identifier } = subscription
    const options = {
      qos,
      retain: false,
      prefix: undefined,
      identifiers: identifier === undefined ? undefined : [identifier],
      streamKey: DEVICE_STREAM,
    }
    const opened = this.#topics.get(topic.noun).subscribe({
      device,
      topic,
      send: ({ levels, payload, contentType, responseTopic, correlationData, expiresAtMs, ...callbacks }) => {
        const applicationMessage = new ApplicationMessage({
          // Without a prefix, the subtopic is the whole topic.
          subtopic: formatDeviceTopic({ ...topic, levels }),
          payload,
          qos: 1,
          retain: false,
          properties: {
            ...NO_PROPERTIES,
            contentType,
            ...(responseTopic === undefined ? {} : { responseTopic }),
            ...(correlationData === undefined ? {} : { correlationData }),
          },
          expiresAtMs,
          sender: undefined,
          envelope: undefined,
          batchSeq: undefined,
          index: 0,
        })
        const { onAcknowledged, onDropped } = callbacks
        session.push(applicationMessage, { ...options, onAcknowledged, onDropped }, UNCOUNTED)
      },
      failed: (error) => this.#host.failed(session, error),
    })
    this.#open.set(subscription, opened)
  }

  /** The connection of the session has ended. */
  endAll(session: Session): void {
    for (const subscription of session.subscriptions.values())
      if (subscription.device !== undefined) this.end(subscription)
  }
}
