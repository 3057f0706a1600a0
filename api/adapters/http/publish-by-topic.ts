/** `POST /publish`: the topic and the payload in a JSON body, as Go clients of Magistrala from v0.20 on send them (contract, decision 67). */
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import type { MessageCredentials } from '#api/devices/index.ts'
import { isTokenLike } from '#api/identity/index.ts'
import { JSON_TYPE, SENML_JSON, parseMessagePath, parseSubtopic, sniff } from '#api/messages/index.ts'
import type { Messages } from '#api/messages/index.ts'
import { bearerTokenOf } from '#core/authorization.ts'
import { refusedField } from '#core/errors/index.ts'
import { NoBody, responses, traceparentOf } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { readCredentials } from '../credentials/credentials.ts'
import type { CredentialTexts } from '../credentials/credentials.ts'
import { MESSAGE_CREDENTIALS, credentialsOf } from './access.ts'
import type { ChannelAccessDeps } from './access.ts'

/** A domain, a channel and a subtopic with their words. */
const MAX_TOPIC_CHARS = 2048

const Publication = Type.Object(
  {
    topic: Type.String({
      minLength: 1,
      maxLength: MAX_TOPIC_CHARS,
      description: '`m/<domain>/c/<channel>` or `channels/<channel>/messages`, and a subtopic after it',
    }),
    payload: Type.String({ description: 'The message in base64; a text that is not base64 is the message itself' }),
    qos: Type.Optional(Type.Integer({ minimum: 0, maximum: 2, description: 'Has no effect: 200 means stored' })),
    retain: Type.Optional(Type.Boolean({ description: 'Keeps the message as the retained message of its topic' })),
  },
  { $id: 'Publication' },
)

/** Content without records: a message that only clears a retained one is not stored. */
const NOTHING = { content: { kind: 'records' as const, records: [] }, fault: undefined }

export function topicPublishRoute(messages: Messages, deps: ChannelAccessDeps): RoutePlugin {
  return (app) => {
    app.post(
      '/publish',
      {
        config: { action: 'publish', ownCredentials: MESSAGE_CREDENTIALS },
        // Other credentials are checked before the body is read.
        onRequest: async (request) => {
          if (readSecret(request) === undefined && bearerTokenOf(request.headers.authorization) === undefined)
            await credentials(request)
        },
        schema: {
          tags: ['messages'],
          summary: 'Publish a message to a topic',
          description:
            'Authorization: `Client <secret>`, Basic with client id and secret, or `Bearer` of a user. A bearer that is not a token is the secret of a client. 200 means stored.',
          body: Publication,
          response: responses({ 200: NoBody }, 'not_found', 'conflict', 'unprocessable', 'rate_limited', 'timeout'),
        },
      },
      async (request, reply) => {
        const { topic, payload, retain = false } = request.body
        const path = parseMessagePath(topic)
        if (path === undefined)
          throw refusedField('/topic', 'must be m/<domain>/c/<channel> or channels/<channel>/messages, and a subtopic')
        const subtopic = parseSubtopic(path.rest)
        const receivedAtSeconds = Date.now() / 1000
        const body = bytesOf(payload)
        const isClearing = retain && body.length === 0
        const { content, fault } = isClearing ? NOTHING : sniff(body, { subtopic, receivedAtSeconds })
        const { domain, channel } = path
        const access = await deps.gate.authorize(await credentials(request), { domain, channel }, 'publish')
        const contentType =
          content.kind === 'records' ? SENML_JSON : content.kind === 'documents' ? JSON_TYPE : content.contentType
        await messages.rates.require(access.domainKey, body.length)
        await messages.publish({
          access,
          subtopic,
          protocol: 'http',
          receivedAtSeconds,
          content,
          original: { contentType, body },
          traceparent: traceparentOf(request),
          ...(retain ? { isRetained: true, envelope: { retain } } : {}),
        })
        if (fault !== undefined && access.publisherKey !== null) messages.presence.unparsed(access.publisherKey, fault)
        return await reply.code(200).send()
      },
    )
  }

  function credentials(request: FastifyRequest): MessageCredentials | Promise<MessageCredentials> {
    const secret = readSecret(request)
    return secret === undefined ? readCredentials(textsOf(request), deps) : { kind: 'client', secret }
  }
}

/** Credentials of the header alone: the clients of this path send one. */
const textsOf = (request: FastifyRequest): CredentialTexts => ({ ...credentialsOf(request), query: undefined })

/** Go clients send the secret of a client as a bearer; it has not the form of a token. */
function readSecret(request: FastifyRequest): string | undefined {
  const token = bearerTokenOf(request.headers.authorization)
  return token === undefined || isTokenLike(token) ? undefined : token
}

const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/

function bytesOf(payload: string): Buffer {
  return payload.length % 4 === 0 && BASE64.test(payload) ? Buffer.from(payload, 'base64') : Buffer.from(payload)
}
