/** What is asked of a channel over CoAP (contract section 7.4). No rule lives here: gate and messages decide. */
import type { ChannelPath, MessageAccess, MessageCredentials, MessageGate } from '#api/devices/index.ts'
import type { ConnectionType } from '#api/identity/index.ts'
import {
  OCTET_STREAM,
  parseContent,
  parseMessagePath,
  parseSubtopic,
  parseSubtopicFilter,
} from '#api/messages/index.ts'
import type { LiveMessage, Messages } from '#api/messages/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Answer } from './answer.ts'
import { answer, isFault, refusal } from './answer.ts'
import { blockValue } from './blocks.ts'
import { LINK_FORMAT, contentTypeOf, formatFor } from './content-formats.ts'
import type { Peer } from './endpoints.ts'
import { CODES, METHODS, NOTHING, payloadRoom } from './message.ts'
import type { CoapMessage } from './message.ts'
import type { Observations } from './observations.ts'
import type { RequestOptions } from './options.ts'
import { CoapRefusal, OPTIONS, readOptions, uintOption } from './options.ts'
import type { Representation, Representations } from './representations.ts'
import type { Uploads } from './uploads.ts'

/** RFC 6690: where messages are. Short, because it is sent to whoever asks. */
const LINKS = Buffer.from('</m>;obs,</channels>;obs')
const WELL_KNOWN = '.well-known/core'
const AUTH = 'auth='
const OBSERVE = { register: 0, deregister: 1 } as const
/** An observer that is not known to be at its address is answered with this part; the rest is for the notification that asks. */
const FIRST_ANSWER_PART = 0.5

export type ResourceDeps = {
  gate: MessageGate
  messages: Messages
  uploads: Uploads
  representations: Representations
  observations: Observations
  maxBodyBytes: number
  logger: Logger
}

export type Resource = {
  /** Never throws. A promise where something has to be waited for. An answer with a message has at most `maxBytes`. */
  handle(request: CoapMessage, peer: Peer, maxBytes: number): Answer | Promise<Answer>
  /** The answer to a request that was answered with this code before. */
  again(request: CoapMessage, code: number): Answer
}

type Asked = {
  options: RequestOptions
  path: ChannelPath
  rest: string
  credentials: MessageCredentials
  /** Of everything that answers it: Infinity where the peer is known to be at its address. */
  maxBytes: number
}

export function createResource(deps: ResourceDeps): Resource {
  const { gate, messages, uploads, representations, observations, maxBodyBytes, logger } = deps

  function refuse(error: unknown, parts: Partial<Answer> = {}): Answer {
    if (isFault(error)) logger.error({ err: error }, 'a request of CoAP failed')
    return refusal(error, parts)
  }

  /** Decided from memory for most; otherwise looked up. */
  function withAccess(
    { credentials, path }: Asked,
    type: ConnectionType,
    proceed: (access: MessageAccess) => Answer | Promise<Answer>,
    check: () => void,
  ): Answer | Promise<Answer> {
    const access = gate.authorizeNow(credentials, path, type)
    if (access !== undefined) return proceed(access)
    return gate.authorize(credentials, path, type).then(proceed, (error: unknown) => {
      // 415 and 400 come before 403 (decision 45), for those who proved who they are.
      if (kindOf(error) === 'forbidden') check()
      throw error
    })
  }

  function post(asked: Asked, request: CoapMessage, peer: Peer): Answer | Promise<Answer> {
    const route = 'POST message'
    const receivedAtSeconds = Date.now() / 1000
    const { options, rest } = asked
    const read = (body: Buffer) => {
      const contentType = contentTypeOf(options.contentFormat)
      const subtopic = parseSubtopic(rest)
      return { contentType, subtopic, content: parseContent(contentType, body, { subtopic, receivedAtSeconds }) }
    }
    const store = (access: MessageAccess): Answer | Promise<Answer> => {
      const { block1 } = options
      const known = { route, isPeerKnown: true }
      try {
        // Before the first block is kept.
        contentTypeOf(options.contentFormat)
        const key = `${peer.key}\n${options.path}\n${options.queries.join('&')}`
        const body = block1 === undefined ? request.payload : uploads.take(key, block1, request.payload, options.size1)
        if (body === undefined) return { ...again(request, CODES.continue), ...known, isRemembered: true }
        if (body.length > maxBodyBytes)
          throw new ServiceError('too_large', `the body must have at most ${maxBodyBytes} bytes`)
        const { contentType, subtopic, content } = read(body)
        const original = { contentType: contentType ?? OCTET_STREAM, body }
        return messages.publish({ access, subtopic, protocol: 'coap', receivedAtSeconds, content, original }).then(
          () => ({ ...again(request, CODES.changed), ...known, isRemembered: true }),
          // After its deadline nobody knows whether it was stored.
          (error: unknown) => refuse(error, { ...known, isRemembered: kindOf(error) === 'timeout' }),
        )
      } catch (error) {
        const refused = refuse(error, known)
        // The largest body that would be taken (RFC 7959 section 2.9.3).
        return kindOf(error) === 'too_large'
          ? { ...refused, options: [uintOption(OPTIONS.size1, maxBodyBytes)] }
          : refused
      }
    }
    return withAccess(asked, 'publish', store, () => void (options.block1 === undefined && read(request.payload)))
  }

  function get(asked: Asked, request: CoapMessage, peer: Peer): Answer | Promise<Answer> {
    const { options, rest, maxBytes } = asked
    const isObserve = options.observe === OBSERVE.register
    const route = isObserve ? 'GET message, observe' : 'GET message'
    const key = `${peer.key}\n${options.path}`
    const known = { route, isPeerKnown: true, isProof: representations.isKnown(key, options.etags) }
    const present = async (access: MessageAccess): Promise<Answer> => {
      try {
        const filter = parseSubtopicFilter(rest)
        if (options.observe === OBSERVE.deregister) observations.close(peer, request.token)
        const kept = (options.block2?.number ?? 0) > 0 ? representations.find(key) : undefined
        if (kept !== undefined)
          return answer(CODES.content, {
            ...known,
            ...representations.part(key, kept, options.block2, payloadRoom(maxBytes)),
          })
        if (isObserve) return await observe(asked, access, filter, request, peer, key, known)
        const message = await messages.latest(access, filter)
        if (message === undefined && options.observe !== OBSERVE.deregister)
          throw new ServiceError('not_found', 'the channel has no message yet')
        const representation = represent(message, options.accept)
        if (representation === undefined)
          throw new CoapRefusal(CODES.notAcceptable, 'the newest message has another format')
        return answer(CODES.content, {
          ...known,
          ...representations.part(key, representation, options.block2, payloadRoom(maxBytes)),
        })
      } catch (error) {
        return refuse(error, known)
      }
    }
    return withAccess(asked, 'subscribe', present, () => void parseSubtopicFilter(rest))
  }

  async function observe(
    { options, credentials, path, maxBytes }: Asked,
    access: MessageAccess,
    filter: string,
    { token }: CoapMessage,
    peer: Peer,
    representationKey: string,
    known: Partial<Answer>,
  ): Promise<Answer> {
    const { accept, block2: block } = options
    const authorize = async () => await gate.authorize(credentials, path, 'subscribe')
    const unpaidBytes = maxBytes * (1 - FIRST_ANSWER_PART)
    const observed = { access, filter, accept, block, representationKey, authorize, unpaidBytes }
    const observing = { peer, token: Buffer.from(token), ...observed }
    const observation = await observations.open(observing)
    try {
      const message = await messages.latest(access, filter)
      const representation = represent(message, accept) ?? { payload: NOTHING, contentFormat: undefined }
      const room = payloadRoom(maxBytes * FIRST_ANSWER_PART)
      const part = representations.part(representationKey, representation, block, room)
      if (observation === undefined) return answer(CODES.content, { ...known, ...part })
      const observeValue = uintOption(OPTIONS.observe, observation.nextSequence())
      const afterwards = () => observation.begin(message)
      return answer(CODES.content, { ...known, ...part, options: [observeValue, ...part.options], afterwards })
    } catch (error) {
      observation?.end()
      throw error
    }
  }

  /** The block of the request is named in its answer (RFC 7959 section 2.3). */
  function again(request: CoapMessage, code: number): Answer {
    const { block1 } = readOptions(request.options)
    const options = block1 === undefined ? [] : [uintOption(OPTIONS.block1, blockValue(block1))]
    return answer(code, { options, isPeerKnown: true })
  }

  function handle(request: CoapMessage, peer: Peer, maxBytes: number): Answer | Promise<Answer> {
    try {
      const { code } = request
      if (code !== METHODS.get && code !== METHODS.post)
        throw new ServiceError('method_not_allowed', 'a channel takes GET and POST')
      const options = readOptions(request.options)
      if (code === METHODS.get && options.path === WELL_KNOWN) {
        const contentFormat = uintOption(OPTIONS.contentFormat, LINK_FORMAT)
        return answer(CODES.content, {
          route: `GET ${WELL_KNOWN}`,
          options: [contentFormat],
          payload: LINKS,
          isPublic: true,
        })
      }
      const path = parseMessagePath(options.path)
      if (path === undefined)
        throw new ServiceError('malformed', 'the path must be m/<domain>/c/<channel> or channels/<channel>/messages')
      const asked = {
        options,
        path: { domain: path.domain, channel: path.channel },
        rest: path.rest,
        credentials: credentialsOf(options),
        maxBytes,
      }
      const answered = code === METHODS.post ? post(asked, request, peer) : get(asked, request, peer)
      const route = code === METHODS.post ? 'POST message' : 'GET message'
      return answered instanceof Promise ? answered.catch((error: unknown) => refuse(error, { route })) : answered
    } catch (error) {
      return refuse(error)
    }
  }

  return { handle, again }
}

/** Exactly one query, which holds the secret. Throws `unauthenticated`. */
function credentialsOf({ queries: [query, ...more] }: RequestOptions): MessageCredentials {
  const secret = query?.startsWith(AUTH) === true ? query.slice(AUTH.length) : ''
  if (secret === '' || more.length > 0)
    throw new ServiceError('unauthenticated', 'the query must be auth=<client secret> and nothing else')
  return { kind: 'client', secret }
}

/** Undefined where the message has a format that is not accepted. */
function represent(message: LiveMessage | undefined, accept: number | undefined): Representation | undefined {
  if (message === undefined) return { payload: NOTHING, contentFormat: undefined }
  const contentFormat = formatFor(message.contentType, accept)
  return contentFormat === false ? undefined : { payload: message.payload, contentFormat }
}
