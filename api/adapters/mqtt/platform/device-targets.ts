/** Authorization of topics of devices themselves, `c/<domain>/…`: the device must belong to the domain that the topic names. */
import type { DeviceCredentials, DeviceTopic, DeviceTopics, IdentifiedDevice, MessageGate } from '#api/devices/index.ts'
import { parseDeviceTopic } from '#api/devices/index.ts'
import { REASON } from '../packets/reason-codes.ts'
import { ProtocolError } from '../packets/wire.ts'
import type { FilterTarget, Target } from '../targets.ts'
import { DEVICE_STREAM } from './device-subscriptions.ts'

export type DeviceTargets = {
  /** Throws, or rejects with, the same `unauthenticated` for an unknown domain and for that of others. */
  target(credentials: DeviceCredentials, name: string): Target | Promise<Target>
  filter(credentials: DeviceCredentials, topicFilter: string): Promise<FilterTarget>
}

export function createDeviceTargets(gate: MessageGate, topics: DeviceTopics): DeviceTargets {
  const deviceOf = (
    credentials: DeviceCredentials,
    { domain }: DeviceTopic,
  ): IdentifiedDevice | Promise<IdentifiedDevice> =>
    gate.identifyInNow(credentials, domain) ?? gate.identifyIn(credentials, domain)

  return {
    target(credentials, name) {
      const topic = topicOf(name, REASON.topicNameInvalid)
      topics.get(topic.noun)
      const targetOf = (device: IdentifiedDevice): Target => ({
        streamKey: DEVICE_STREAM,
        subtopic: name,
        access: undefined,
        device: { device, topic },
      })
      const device = deviceOf(credentials, topic)
      return device instanceof Promise ? device.then(targetOf) : targetOf(device)
    },
    async filter(credentials, topicFilter) {
      const topic = topicOf(topicFilter, REASON.topicFilterInvalid)
      topics.get(topic.noun).checkFilter(topic.levels)
      const device = await deviceOf(credentials, topic)
      const { levels } = topic
      return { streamKey: DEVICE_STREAM, levels, prefix: undefined, access: undefined, device: { device, topic } }
    },
  }
}

/** Throws for a topic that is incomplete, and for wildcards where they stand for a domain or a noun. */
function topicOf(text: string, reasonCode: number): DeviceTopic {
  const topic = parseDeviceTopic(text)
  if (topic === undefined || /[+#]/.test(topic.domain + topic.noun))
    throw new ProtocolError(reasonCode, 'a topic of a device is c/<domain>/<noun>, and levels behind it')
  return topic
}
