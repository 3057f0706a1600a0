/** Commands for devices over HTTP: a long poll for what is open, and the answer. */
import type { FastifyReply } from 'fastify'
import { Type } from 'typebox'
import type { CommandDelivery } from '#api/devices/index.ts'
import { Answered, CommandResult, OfferedCommands, presentOffered } from '#api/devices/index.ts'
import type { Messages } from '#api/messages/index.ts'
import { responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import { DURATION_PATTERN } from '#core/time.ts'
import { documented } from '#http/index.ts'
import { authorizationQuery } from './access.ts'
import type { ChannelAccessDeps } from './access.ts'
import { DEVICE_CREDENTIALS, DeviceDomain, deviceOf, identifyDevices } from './device.ts'

const tags = ['commands']
const config = { ownCredentials: DEVICE_CREDENTIALS }
const MAX_DURATION_CHARS = 32

const Query = Type.Object({
  wait: Type.Optional(
    Type.String({
      maxLength: MAX_DURATION_CHARS,
      description: 'Time to wait for a command, at most 1m; absent: all open commands are returned at once',
      ...documented({ pattern: DURATION_PATTERN }),
    }),
  ),
  ...authorizationQuery,
})

export function deviceCommandRoutes(
  delivery: CommandDelivery,
  messages: Pick<Messages, 'rates'>,
  deps: ChannelAccessDeps,
): RoutePlugin {
  return async (app) => {
    await app.register((scope: HttpApp, _options, done) => {
      identifyDevices(scope, deps)
      scope.get(
        '/c/:domain_id/commands',
        {
          config,
          exposeHeadRoute: false,
          schema: {
            tags,
            summary: 'Take the open commands of the device',
            description:
              'Authorization: `Client <secret>`, or Basic with client id and secret. What is returned is delivered, and is returned again until it has an answer: with `wait` after 30 seconds, without it each time.',
            params: DeviceDomain,
            querystring: Query,
            response: responses({ 200: OfferedCommands }, 'rate_limited'),
          },
        },
        async (request, reply) => {
          const gone = new AbortController()
          ;(reply as unknown as FastifyReply).raw.once('close', () => gone.abort())
          const taken = await delivery.take(deviceOf(request as never), request.query.wait, gone.signal)
          void reply.header('Cache-Control', 'no-store')
          return { commands: taken.map(presentOffered) }
        },
      )
      scope.post(
        '/c/:domain_id/commands/:command_id/result',
        {
          config,
          schema: {
            tags,
            summary: 'Answer a command',
            description:
              'The first answer ends the command, and the response follows its commit. Sending it again has no effect. An answer after the end changes nothing: `late` is true, and `status` says how it ended. A result above 64 KiB is 413, and the command has failed.',
            params: Type.Object({ ...DeviceDomain.properties, command_id: Type.String({ maxLength: 64 }) }),
            querystring: Type.Object(authorizationQuery),
            body: CommandResult,
            response: responses({ 200: Answered }, 'not_found', 'rate_limited'),
          },
        },
        async (request) => {
          const { command_id: id } = request.params
          const device = deviceOf(request as never)
          const { 'content-length': declared } = request.headers
          const bytes = declared === undefined ? Buffer.byteLength(JSON.stringify(request.body)) : Number(declared)
          await messages.rates.require(device.domainKey, bytes)
          const answer = { bytes, result: () => request.body }
          const { isLate, ...answered } = await delivery.answer(device, id, answer)
          return { ...answered, late: isLate }
        },
      )
      done()
    })
  }
}
