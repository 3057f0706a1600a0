/** Publishing over HTTP (contract section 7.1, decisions 17, 17b and 54): 202 means stored. */
import type { FastifyRequest, FastifySchemaCompiler } from 'fastify'
import { Type } from 'typebox'
import { idempotencyOf, parseContent, parseSubtopic, typeOfContent } from '#api/messages/index.ts'
import type { IncomingMessage, Messages } from '#api/messages/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { NoBody, responses, traceparentOf } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import type { ChannelAccessDeps } from './access.ts'
import { MESSAGE_CREDENTIALS, accessOf, authorizationQuery, callerOf, checkAccess } from './access.ts'
import { MESSAGE_TYPES, contentTypeOf, messageBytes, takeMessageBodies } from './body.ts'

const DomainChannel = Type.Object({
  domain_id: Type.String({ description: 'Id or route of the domain' }),
  channel_id: Type.String({ description: 'Id or route of the channel' }),
})
const Channel = Type.Pick(DomainChannel, ['channel_id'])
const Subtopic = { '*': Type.String({ description: 'Subtopic: elements separated by / or .' }) }
const Headers = Type.Object({
  'idempotency-key': Type.Optional(
    Type.String({ description: 'The same key with the same body is stored once in 24 hours' }),
  ),
})
const Query = Type.Object(authorizationQuery)

const Body = Type.Unknown({
  description: 'A SenML pack in JSON or CBOR, JSON objects, or any bytes, as the content type says',
})

/** Fastify validates nothing for which there is no function. */
const NO_VALIDATORS = (() => undefined) as unknown as FastifySchemaCompiler<unknown>

/** Paths with their parameters; the older ones have no domain. */
const PATHS = [
  { path: '/http/m/:domain_id/c/:channel_id', params: DomainChannel },
  { path: '/m/:domain_id/c/:channel_id', params: DomainChannel },
  { path: '/http/channels/:channel_id/messages', params: Channel },
  { path: '/channels/:channel_id/messages', params: Channel },
] as const

export function publishRoutes(messages: Messages, deps: ChannelAccessDeps): RoutePlugin {
  return async (app) => {
    // A separate scope: only here, bodies may be other than JSON.
    await app.register((scope: HttpApp, _options, done) => {
      checkAccess(scope, 'publish', deps)
      takeMessageBodies(scope)
      for (const { path, params } of PATHS) {
        addRoute(scope, path, params)
        addRoute(scope, `${path}/*`, Type.Object({ ...params.properties, ...Subtopic }))
      }
      done()
    })
  }

  function addRoute(scope: HttpApp, path: string, params: typeof DomainChannel | typeof Channel): void {
    scope.post(
      path,
      {
        config: { action: 'publish', ownCredentials: MESSAGE_CREDENTIALS },
        // Path, headers and query of a publish are not validated as text; the schemas are for the document.
        validatorCompiler: NO_VALIDATORS,
        schema: {
          tags: ['messages'],
          summary: 'Publish a message',
          description:
            'Authorization: `Client <secret>`, Basic with client id and secret, or `Bearer` of a user. 202 means stored.',
          consumes: [...MESSAGE_TYPES],
          body: Body,
          params,
          headers: Headers,
          querystring: Query,
          response: responses({ 202: NoBody }, 'not_found', 'conflict', 'unprocessable', 'rate_limited', 'timeout'),
        },
      },
      // This is not an async function: most messages are checked at once and wait only for their commit.
      (request, reply) => {
        const body = messageBytes(request)
        const stored = body instanceof Promise ? body.then((bytes) => publish(request, bytes)) : publish(request, body)
        stored.then(
          () => reply.code(202).send(),
          (error: unknown) => reply.send(error),
        )
      },
    )
  }

  /** An invalid message of a client is counted in its telemetry. */
  function parse(request: FastifyRequest, ...given: Parameters<typeof parseContent>): ReturnType<typeof parseContent> {
    try {
      return parseContent(...given)
    } catch (error) {
      const publisherKey = request.messageAccess?.access?.publisherKey ?? null
      if (publisherKey !== null && error instanceof ServiceError && error.kind === 'malformed')
        messages.presence.unparsed(publisherKey, error.message)
      throw error
    }
  }

  function publish(request: FastifyRequest, body: Buffer): Promise<void> {
    const contentType = contentTypeOf(request)
    const subtopic = subtopicOf(request)
    const receivedAtSeconds = Date.now() / 1000
    // Errors of the body precede errors of the channel.
    const content = parse(request, contentType, body, { subtopic, receivedAtSeconds })
    const access = accessOf(request)
    const original = { contentType: contentType ?? typeOfContent(content), body }
    const traceparent = traceparentOf(request)
    const message: IncomingMessage = {
      access,
      subtopic,
      protocol: 'http',
      receivedAtSeconds,
      content,
      original,
      traceparent,
    }
    const key = request.headers['idempotency-key']
    if (key === undefined) return admitted(message, body)
    if (Array.isArray(key)) throw new ServiceError('malformed', 'the header Idempotency-Key must be given once')
    const idempotency = idempotencyOf({
      caller: callerOf(request),
      channelKey: access.channelKey,
      subtopic,
      key,
      contentType: contentType ?? '',
      body,
    })
    return admitted({ ...message, idempotency }, body)
  }

  function admitted(message: IncomingMessage, body: Buffer): Promise<void> {
    const waits = messages.rates.require(message.access.domainKey, body.length)
    return waits === undefined ? messages.publish(message) : waits.then(() => messages.publish(message))
  }
}

function subtopicOf(request: FastifyRequest): string {
  const { '*': rest } = request.params as { '*'?: string }
  return rest === undefined || rest === '' ? '' : parseSubtopic(rest)
}
