/** Requests of devices about themselves, `c/<domain>/<noun>/…`: the gate finds the device, the noun's service answers. */
import type {
  DeviceCredentials,
  DeviceRepresentation,
  DeviceRequest,
  DeviceTopic,
  DeviceTopics,
  IdentifiedDevice,
  MessageGate,
} from '#api/devices/index.ts'
import { noSuchTopic, parseDeviceTopic } from '#api/devices/index.ts'
import type { Messages } from '#api/messages/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { blockValue } from './blocks.ts'
import { deltaAsSenml, deviceContentTypeOf, formatOf, isSenmlFormat } from './content-formats.ts'
import type { DeviceObservations } from './device-observation.ts'
import type { Endpoints, Peer } from './endpoints.ts'
import { CODES, EMPTY_BYTES, METHODS, maxPayloadBytes } from './message.ts'
import type { CoapMessage } from './message.ts'
import type { RequestOptions } from './options.ts'
import { CoapRefusal, OPTIONS, uintOption } from './options.ts'
import type { Representations } from './representations.ts'
import type { CoapResponse } from './response.ts'
import { createResponse, isFault, refusal } from './response.ts'
import { transferKey, uploadedBody } from './transfers.ts'
import type { Uploads } from './uploads.ts'

const AUTH = 'auth='
const OBSERVE_REGISTER = 0
/** The noun of which the difference is also SenML. */
const STATE = 'state'
/** As for channels: the rest of the limit is for a confirmable notification. */
const FIRST_ANSWER_PART = 0.5

const METHOD_NAMES: ReadonlyMap<number, DeviceRequest['method']> = new Map([
  [METHODS.get, 'get'],
  [METHODS.post, 'post'],
  [METHODS.put, 'put'],
  [METHODS.delete, 'delete'],
  [METHODS.patch, 'patch'],
  // A merge patch is idempotent, so both are the same here.
  [METHODS.iPatch, 'patch'],
])

export type DeviceResourceDeps = {
  gate: MessageGate
  topics: DeviceTopics
  messages: Pick<Messages, 'rates'>
  endpoints: Endpoints
  uploads: Uploads
  representations: Representations
  observations: DeviceObservations
  maxBodyBytes: number
  logger: Logger
}

type Asked = {
  method: DeviceRequest['method']
  topic: DeviceTopic
  options: RequestOptions
  request: CoapMessage
  peer: Peer
  maxBytes: number
  credentials: DeviceCredentials
  queries: readonly string[]
  known: Partial<CoapResponse> & { route: string }
}

export class DeviceResource {
  readonly #deps: DeviceResourceDeps

  constructor(deps: DeviceResourceDeps) {
    this.#deps = deps
  }

  /** Throws what can be said without the device. The promise never rejects. */
  handle(
    options: RequestOptions,
    request: CoapMessage,
    peer: Peer,
    maxBytes: number,
  ): CoapResponse | Promise<CoapResponse> {
    const method = METHOD_NAMES.get(request.code)
    if (method === undefined) throw new ServiceError('method_not_allowed', 'the method is not supported')
    const topic = parseDeviceTopic(options.path)
    if (topic === undefined) throw noSuchTopic()
    const { credentials, queries } = credentialsOf(options)
    const known = { route: `${method.toUpperCase()} device`, isPeerKnown: true }
    return this.#answer({ method, topic, options, request, peer, maxBytes, credentials, queries, known })
  }

  async #answer(asked: Asked): Promise<CoapResponse> {
    const { gate } = this.#deps
    const { credentials, topic, method, known } = asked
    let device: IdentifiedDevice
    try {
      device = gate.identifyInNow(credentials, topic.domain) ?? (await gate.identifyIn(credentials, topic.domain))
    } catch (error) {
      return this.#refuse(error, { route: known.route })
    }
    try {
      return method === 'get' ? await this.#get(asked, device) : await this.#change(asked, device)
    } catch (error) {
      // The outcome is unknown when the deadline has passed. A copy of a refused block must not be taken for one of a later upload.
      const isRemembered =
        method !== 'get' &&
        (kindOf(error) === 'timeout' || (error instanceof CoapRefusal && error.code === CODES.requestEntityIncomplete))
      const refused = this.#refuse(error, { ...known, isRemembered })
      return kindOf(error) === 'too_large'
        ? { ...refused, options: [uintOption(OPTIONS.size1, this.#deps.maxBodyBytes)] }
        : refused
    }
  }

  #refuse(error: unknown, parts: Partial<CoapResponse>): CoapResponse {
    if (isFault(error)) this.#deps.logger.error({ err: error }, 'a CoAP request failed')
    return refusal(error, parts)
  }

  async #change(asked: Asked, device: IdentifiedDevice): Promise<CoapResponse> {
    const { topics, uploads, messages, maxBodyBytes } = this.#deps
    const { method, topic, options, queries, known } = asked
    const noun = topics.get(topic.noun)
    // Checks the content format before the first block is stored.
    const contentType = deviceContentTypeOf(options.contentFormat)
    const body = uploadedBody(uploads, asked)
    const { block1 } = options
    const block = block1 === undefined ? [] : [uintOption(OPTIONS.block1, blockValue(block1))]
    if (body === undefined) return createResponse(CODES.continue, { ...known, options: block, isRemembered: true })
    if (body.length > maxBodyBytes)
      throw new ServiceError('too_large', `the body must have at most ${maxBodyBytes} bytes`)
    const waits = messages.rates.require(device.domainKey, body.length)
    if (waits !== undefined) await waits
    const message = { payload: Buffer.from(body), contentType, correlationData: undefined }
    await noun.request(device, { method, levels: topic.levels, queries, message })
    const code = method === 'delete' ? CODES.deleted : CODES.changed
    return createResponse(code, { ...known, options: block, isRemembered: true })
  }

  async #get(asked: Asked, device: IdentifiedDevice): Promise<CoapResponse> {
    const { topics, representations, gate, endpoints, observations } = this.#deps
    const { topic, options, request, peer, maxBytes, queries, credentials } = asked
    const { accept, block2, observe, etags } = options
    const key = transferKey(options, request, peer)
    const known = { ...asked.known, isProof: representations.isKnown(key, etags) }
    const kept = (block2?.number ?? 0) > 0 ? representations.find(key) : undefined
    const partOf = (shown: DeviceRepresentation, room: number) => {
      const contentFormat = formatOf(shown.contentType)
      if (accept !== undefined && accept !== contentFormat)
        throw new CoapRefusal(CODES.notAcceptable, 'there is no representation in this format')
      return representations.part(key, { payload: shown.payload, contentFormat }, block2, maxPayloadBytes(room))
    }
    if (kept !== undefined)
      return createResponse(CODES.content, {
        ...known,
        ...representations.part(key, kept, block2, maxPayloadBytes(maxBytes)),
      })
    const noun = topics.get(topic.noun)
    const read = async () => {
      const message = { payload: EMPTY_BYTES, contentType: undefined, correlationData: undefined }
      const found = await noun.request(device, { method: 'get', levels: topic.levels, queries, message })
      const shown = found ?? { payload: EMPTY_BYTES, contentType: '' }
      const isDelta = accept !== undefined && isSenmlFormat(accept) && topic.noun === STATE
      return isDelta ? (deltaAsSenml(shown.payload, accept) ?? shown) : shown
    }
    // Notifications have the whole document: a device that reads SenML alone asks again.
    if (observe !== OBSERVE_REGISTER || isSenmlFormat(accept))
      return createResponse(CODES.content, { ...known, ...partOf(await read(), maxBytes) })
    const token = Buffer.from(request.token)
    const observation = observations.open(endpoints.of(peer), {
      peer,
      token,
      block: block2,
      representationKey: key,
      authorize: () => gate.identifyIn(credentials, topic.domain),
      unpaidBytes: maxBytes * (1 - FIRST_ANSWER_PART),
    })
    try {
      // Before the representation is read, so that no change between both is missed.
      const subscription =
        observation === undefined
          ? undefined
          : noun.observe({
              device,
              topic,
              send: (message) => observation.send(message),
              failed: (error) => observation.failed(error),
            })
      if (subscription === undefined) observation?.end()
      else observation?.subscribed(subscription)
      const shown = await read()
      const part = partOf(shown, observation === undefined ? maxBytes : maxBytes * FIRST_ANSWER_PART)
      if (observation === undefined || subscription === undefined)
        return createResponse(CODES.content, { ...known, ...part })
      const observeValue = uintOption(OPTIONS.observe, observation.nextSequence())
      const afterwards = () => observation.begin(shown)
      return createResponse(CODES.content, { ...known, ...part, options: [observeValue, ...part.options], afterwards })
    } catch (error) {
      observation?.end()
      throw error
    }
  }
}

/** The secret, and the other queries. Throws `unauthenticated` without exactly one secret. */
function credentialsOf({ queries }: RequestOptions): { credentials: DeviceCredentials; queries: readonly string[] } {
  const [secret, ...more] = queries.filter((query) => query.startsWith(AUTH)).map((query) => query.slice(AUTH.length))
  if (secret === undefined || secret === '' || more.length > 0)
    throw new ServiceError('unauthenticated', 'the query must contain auth=<client secret>')
  return { credentials: { kind: 'client', secret }, queries: queries.filter((query) => !query.startsWith(AUTH)) }
}
