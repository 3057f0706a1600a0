/** Requests for a channel over CoAP (contract section 7.4). The gate authorizes them; `messages` stores and reads the messages. */
import type { ChannelPath, ChannelAccess, MessageCredentials, MessageGate } from '#api/devices/index.ts'
import { isDeviceTopic } from '#api/devices/index.ts'
import type { ConnectionType } from '#api/identity/index.ts'
import {
  typeOfContent,
  parseContent,
  parseMessagePath,
  parseSubtopic,
  parseSubtopicFilter,
} from '#api/messages/index.ts'
import type { Messages } from '#api/messages/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { CoapResponse } from './response.ts'
import { createResponse, isFault, refusal } from './response.ts'
import { blockValue } from './blocks.ts'
import { LINK_FORMAT, contentTypeOf, represent } from './content-formats.ts'
import type { Representation } from './content-formats.ts'
import type { DeviceResource } from './device-resource.ts'
import { findLinks } from './discovery.ts'
import type { Peer } from './endpoints.ts'
import { CODES, METHODS, EMPTY_BYTES, maxPayloadBytes } from './message.ts'
import type { CoapMessage } from './message.ts'
import type { Observations } from './observations.ts'
import type { RequestOptions } from './options.ts'
import { CoapRefusal, OPTIONS, readOptions, uintOption } from './options.ts'
import type { Representations } from './representations.ts'
import { transferKey, uploadedBody } from './transfers.ts'
import type { Uploads } from './uploads.ts'

const WELL_KNOWN = '.well-known/core'
const AUTH = 'auth='
const OBSERVE = { register: 0, deregister: 1 } as const
/**
 * The part of the byte limit that the first response to an observer with an unverified address can use. The rest is for a
 * confirmable notification.
 */
const FIRST_ANSWER_PART = 0.5

export type ChannelResourceDeps = {
  gate: MessageGate
  messages: Messages
  uploads: Uploads
  representations: Representations
  observations: Observations
  /** Answers paths of devices themselves. */
  devices: DeviceResource
  maxBodyBytes: number
  logger: Logger
}

/** A request with its channel and credentials. */
type Asked = {
  options: RequestOptions
  path: ChannelPath
  rest: string
  credentials: MessageCredentials
  /** The limit of all responses: Infinity when the address is verified. */
  maxBytes: number
  request: CoapMessage
  peer: Peer
}

export class ChannelResource {
  readonly #deps: ChannelResourceDeps

  constructor(deps: ChannelResourceDeps) {
    this.#deps = deps
  }

  /** Never throws. Returns a promise when it must wait. A response with a message has at most `maxBytes`. */
  handle(request: CoapMessage, peer: Peer, maxBytes: number): CoapResponse | Promise<CoapResponse> {
    try {
      const { code } = request
      const options = readOptions(request.options)
      const isOfDevice = isDeviceTopic(options.path)
      if (!isOfDevice && code !== METHODS.get && code !== METHODS.post)
        throw new ServiceError('method_not_allowed', 'a channel accepts GET and POST')
      if (code === METHODS.get && options.path === WELL_KNOWN) return links(options.queries)
      if (code === METHODS.get && options.observe === OBSERVE.deregister) {
        // Endpoint and token identify the observation (RFC 7641 section 4.1). Clients omit the query, and so the secret.
        const isClosed = this.#deps.observations.close(peer, request.token)
        if (isClosed && options.queries.length === 0) return createResponse(CODES.content, { route: 'GET message' })
      }
      if (isOfDevice) return this.#deps.devices.handle(options, request, peer, maxBytes)
      const asked = ask(options, request, peer, maxBytes)
      const route = code === METHODS.post ? 'POST message' : 'GET message'
      const answered = code === METHODS.post ? this.#post(asked) : this.#get(asked)
      return answered instanceof Promise ? answered.catch((error: unknown) => this.#refuse(error, { route })) : answered
    } catch (error) {
      return this.#refuse(error)
    }
  }

  /** Returns a response with this code and the block option of the request (RFC 7959 section 2.3), also for a duplicate. */
  again(request: CoapMessage, code: number): CoapResponse {
    const { block1 } = readOptions(request.options)
    const options = block1 === undefined ? [] : [uintOption(OPTIONS.block1, blockValue(block1))]
    return createResponse(code, { options, isPeerKnown: true })
  }

  #refuse(error: unknown, parts: Partial<CoapResponse> = {}): CoapResponse {
    if (isFault(error)) this.#deps.logger.error({ err: error }, 'a CoAP request failed')
    return refusal(error, parts)
  }

  /** Uses a cached decision of the gate if there is one. Otherwise waits for the gate. */
  #withAccess(
    { credentials, path }: Asked,
    type: ConnectionType,
    proceed: (access: ChannelAccess) => CoapResponse | Promise<CoapResponse>,
    check: () => void,
  ): CoapResponse | Promise<CoapResponse> {
    const { gate } = this.#deps
    const access = gate.authorizeNow(credentials, path, type)
    if (access !== undefined) return proceed(access)
    return gate.authorize(credentials, path, type).then(proceed, (error: unknown) => {
      // 415 and 400 precede 403 for authenticated callers (decision 45).
      if (kindOf(error) === 'forbidden') check()
      throw error
    })
  }

  #post(asked: Asked): CoapResponse | Promise<CoapResponse> {
    const receivedAtSeconds = Date.now() / 1000
    const check = () => {
      if (asked.options.block1 === undefined) read(asked, asked.request.payload, receivedAtSeconds)
    }
    return this.#withAccess(asked, 'publish', (access) => this.#store(asked, access, receivedAtSeconds), check)
  }

  #store(asked: Asked, access: ChannelAccess, receivedAtSeconds: number): CoapResponse | Promise<CoapResponse> {
    const { messages, maxBodyBytes } = this.#deps
    const known = { route: 'POST message', isPeerKnown: true }
    try {
      // Checks the content format before the first block is stored.
      contentTypeOf(asked.options.contentFormat)
      const body = uploadedBody(this.#deps.uploads, asked)
      if (body === undefined) return { ...this.again(asked.request, CODES.continue), ...known, isRemembered: true }
      if (body.length > maxBodyBytes)
        throw new ServiceError('too_large', `the body must have at most ${maxBodyBytes} bytes`)
      const { contentType, subtopic, content } = this.#read(asked, access, body, receivedAtSeconds)
      const original = { contentType: contentType ?? typeOfContent(content), body }
      const message = { access, subtopic, protocol: 'coap', receivedAtSeconds, content, original } as const
      const waits = messages.rates.require(access.domainKey, body.length)
      const stored = waits === undefined ? messages.publish(message) : waits.then(() => messages.publish(message))
      return stored.then(
        () => ({ ...this.again(asked.request, CODES.changed), ...known, isRemembered: true }),
        // The outcome is unknown when the deadline has passed.
        (error: unknown) => this.#refuse(error, { ...known, isRemembered: kindOf(error) === 'timeout' }),
      )
    } catch (error) {
      // A copy of a refused block must not be taken for one of a later upload.
      const isRemembered = error instanceof CoapRefusal && error.code === CODES.requestEntityIncomplete
      const refused = this.#refuse(error, { ...known, isRemembered })
      // The largest accepted body (RFC 7959 section 2.9.3).
      return kindOf(error) === 'too_large'
        ? { ...refused, options: [uintOption(OPTIONS.size1, maxBodyBytes)] }
        : refused
    }
  }

  /** An invalid message of a client is counted in its telemetry. */
  #read(asked: Asked, { publisherKey }: ChannelAccess, body: Buffer, receivedAtSeconds: number) {
    try {
      return read(asked, body, receivedAtSeconds)
    } catch (error) {
      if (publisherKey !== null && error instanceof ServiceError && error.kind === 'malformed')
        this.#deps.messages.presence.unparsed(publisherKey, error.message)
      throw error
    }
  }

  #get(asked: Asked): CoapResponse | Promise<CoapResponse> {
    const { options, rest, request, peer } = asked
    const route = options.observe === OBSERVE.register ? 'GET message, observe' : 'GET message'
    const key = transferKey(options, request, peer)
    const known = { route, isPeerKnown: true, isProof: this.#deps.representations.isKnown(key, options.etags) }
    const present = async (access: ChannelAccess): Promise<CoapResponse> => {
      try {
        return await this.#present(asked, access, key, known)
      } catch (error) {
        return this.#refuse(error, known)
      }
    }
    return this.#withAccess(asked, 'subscribe', present, () => void parseSubtopicFilter(rest))
  }

  async #present(
    asked: Asked,
    access: ChannelAccess,
    representationKey: string,
    known: Partial<CoapResponse>,
  ): Promise<CoapResponse> {
    const { messages, representations } = this.#deps
    const { options, rest, maxBytes } = asked
    const { accept, block2, observe } = options
    const partOf = (representation: Representation) =>
      createResponse(CODES.content, {
        ...known,
        ...representations.part(representationKey, representation, block2, maxPayloadBytes(maxBytes)),
      })
    const filter = parseSubtopicFilter(rest)
    const kept = (block2?.number ?? 0) > 0 ? representations.find(representationKey) : undefined
    if (kept !== undefined) return partOf(kept)
    if (observe === OBSERVE.register) return await this.#observe(asked, access, filter, representationKey, known)
    const message = await messages.latest(access, filter)
    if (message === undefined && observe !== OBSERVE.deregister)
      throw new ServiceError('not_found', 'the channel has no message yet')
    return partOf(message === undefined ? EMPTY : acceptable(represent(message, accept)))
  }

  async #observe(
    { options, credentials, path, maxBytes, request, peer }: Asked,
    access: ChannelAccess,
    filter: string,
    representationKey: string,
    known: Partial<CoapResponse>,
  ): Promise<CoapResponse> {
    const { gate, messages, representations, observations } = this.#deps
    const { accept, block2: block } = options
    const authorize = async () => await gate.authorize(credentials, path, 'subscribe')
    const unpaidBytes = maxBytes * (1 - FIRST_ANSWER_PART)
    const observed = { access, filter, accept, block, representationKey, authorize, unpaidBytes }
    const observation = await observations.open({ peer, token: Buffer.from(request.token), ...observed })
    try {
      const message = await messages.latest(access, filter)
      const representation = message === undefined ? EMPTY : acceptable(represent(message, accept))
      const room = maxPayloadBytes(maxBytes * FIRST_ANSWER_PART)
      const part = representations.part(representationKey, representation, block, room)
      if (observation === undefined) return createResponse(CODES.content, { ...known, ...part })
      const observeValue = uintOption(OPTIONS.observe, observation.nextSequence())
      const afterwards = () => observation.begin(message, representation.contentFormat)
      return createResponse(CODES.content, { ...known, ...part, options: [observeValue, ...part.options], afterwards })
    } catch (error) {
      observation?.end()
      throw error
    }
  }
}

/** The representation of a channel without messages. */
const EMPTY: Representation = { payload: EMPTY_BYTES, contentFormat: undefined }

/** Throws `notAcceptable` when the message has no representation in the requested format. */
function acceptable(representation: Representation | undefined): Representation {
  if (representation === undefined) throw new CoapRefusal(CODES.notAcceptable, 'the newest message has another format')
  return representation
}

function links(queries: readonly string[]): CoapResponse {
  return createResponse(CODES.content, {
    route: `GET ${WELL_KNOWN}`,
    options: [uintOption(OPTIONS.contentFormat, LINK_FORMAT)],
    payload: findLinks(queries.filter((query) => !query.startsWith(AUTH))),
    isPublic: true,
  })
}

/** Throws `malformed` for a path that is not a channel, and `unauthenticated` without a secret. */
function ask(options: RequestOptions, request: CoapMessage, peer: Peer, maxBytes: number): Asked {
  const path = parseMessagePath(options.path)
  if (path === undefined)
    throw new ServiceError('malformed', 'the path must be m/<domain>/c/<channel> or channels/<channel>/messages')
  const { domain, channel, rest } = path
  return { options, path: { domain, channel }, rest, credentials: credentialsOf(options), maxBytes, request, peer }
}

/** The published content. Throws the errors of the parser. */
function read({ options, rest }: Asked, body: Buffer, receivedAtSeconds: number) {
  const contentType = contentTypeOf(options.contentFormat)
  const subtopic = parseSubtopic(rest)
  return { contentType, subtopic, content: parseContent(contentType, body, { subtopic, receivedAtSeconds }) }
}

/** Returns the secret in the query. Throws `unauthenticated` unless it is the only query option. */
function credentialsOf({ queries: [query, ...more] }: RequestOptions): MessageCredentials {
  const secret = query?.startsWith(AUTH) === true ? query.slice(AUTH.length) : ''
  if (secret === '' || more.length > 0)
    throw new ServiceError('unauthenticated', 'the query must be auth=<client secret> and nothing else')
  return { kind: 'client', secret }
}
