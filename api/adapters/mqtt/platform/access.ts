/** Authentication and authorization of MQTT connections by the platform (contract section 7.3). */
import type { AccessQuestion, DeviceCredentials, DeviceTopics, MessageGate } from '#api/devices/index.ts'
import { isDeviceTopic } from '#api/devices/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { MqttBackend } from '../backend.ts'
import type { ConnectPacket } from '../packets/connect.ts'
import type { Session } from '../session.ts'
import type { FilterTarget, Identity, Target } from '../targets.ts'
import { createDeviceTargets } from './device-targets.ts'
import { parseTopicFilter, parseTopicName } from './topics.ts'
import type { TopicName } from './topics.ts'

export type ConnectionAuthorizer = Pick<MqttBackend, 'authenticate' | 'recheck' | 'target' | 'filter'>

export function createConnectionAuthorizer(gate: MessageGate, topics: DeviceTopics): ConnectionAuthorizer {
  const ofDevices = createDeviceTargets(gate, topics)

  /** Returns the key of the client. Without a key, returns the credentials of the connection. */
  function credentialsOf(identity: Identity): DeviceCredentials {
    if (identity.ownerKey !== undefined) return { kind: 'device', clientKey: identity.ownerKey }
    if (identity.credentials === undefined) throw new ServiceError('unauthenticated', 'no credentials')
    return identity.credentials
  }

  async function identify(credentials: DeviceCredentials): Promise<Identity> {
    const [first, ...more] = await gate.identifyAll(credentials)
    if (first === undefined || more.length > 0)
      return { scope: newId(), ownerKey: undefined, domainKey: undefined, credentials }
    return { scope: `${first.clientKey}`, ownerKey: first.clientKey, domainKey: first.domainKey, credentials }
  }

  /** Most devices publish to one topic again and again. What the gate decides about it is asked for each message. */
  const lastTopics = new WeakMap<Identity, { topic: string; name: TopicName; question: AccessQuestion }>()

  function target(identity: Identity, topic: string): Target | Promise<Target> {
    if (isDeviceTopic(topic)) return ofDevices.target(credentialsOf(identity), topic)
    let last = lastTopics.get(identity)
    if (last?.topic !== topic) {
      const name = parseTopicName(topic)
      last = { topic, name, question: gate.questionOf(credentialsOf(identity), name.path, 'publish') }
      lastTopics.set(identity, last)
    }
    const { path, subtopic } = last.name
    const access = gate.answerNow(last.question)
    if (access !== undefined) return { streamKey: access.channelKey, subtopic, access }
    return gate
      .authorize(credentialsOf(identity), path, 'publish')
      .then((found) => ({ streamKey: found.channelKey, subtopic, access: found }))
  }

  async function filter(identity: Identity, topicFilter: string): Promise<FilterTarget> {
    if (isDeviceTopic(topicFilter)) return await ofDevices.filter(credentialsOf(identity), topicFilter)
    const { path, levels, prefix } = parseTopicFilter(topicFilter)
    const access = await gate.authorize(credentialsOf(identity), path, 'subscribe')
    return { streamKey: access.channelKey, levels, prefix, access }
  }

  async function authenticate(connect: ConnectPacket, certificate: DeviceCredentials | undefined): Promise<Identity> {
    const secret = connect.password?.toString('utf8') ?? ''
    // A certificate is used when no secret is given, as with the other protocols.
    if (certificate !== undefined && secret === '') return await identify(certificate)
    if (secret === '') throw new ServiceError('unauthenticated', 'the password must be the secret of a client')
    const clientId = connect.username === undefined || connect.username === '' ? undefined : connect.username
    return await identify({ kind: 'client', secret, clientId })
  }

  async function recheck(session: Session): Promise<void> {
    const { identity } = session
    if (identity.credentials === undefined) return
    const clients = await gate.identifyAll(identity.credentials)
    const isSame = ({ clientKey }: { clientKey: number }) => clientKey === identity.ownerKey
    if (identity.ownerKey !== undefined && !clients.some(isSame))
      throw new ServiceError('unauthenticated', 'the client was changed or disabled')
    for (const subscription of session.subscriptions.values()) await filter(identity, subscription.topicFilter)
  }

  return { authenticate, recheck, target, filter }
}
