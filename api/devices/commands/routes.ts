/** Routes by which users give commands to clients. */
import type { FastifyReply } from 'fastify'
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import { idempotencyKeyOf } from './idempotency.ts'
import {
  Command,
  CommandPage,
  CommandQuery,
  IdempotencyHeaders,
  NewCommand,
  WaitQuery,
  presentCommand,
} from './schema.ts'
import type { CommandsService } from './service.ts'

const tags = ['commands']
const PATH = '/:domain_id/clients/:client_id/commands'
const ONE = `${PATH}/:command_id`
const ofClient = Type.Object({ domain_id: Id, client_id: Id })
const ofCommand = Type.Object({ domain_id: Id, client_id: Id, command_id: Id })

/** Aborted when the caller has gone. */
function goneSignal(reply: FastifyReply): AbortSignal {
  const gone = new AbortController()
  reply.raw.once('close', () => gone.abort())
  return gone.signal
}

export function commandRoutes(commands: CommandsService): RoutePlugin {
  return (app) => {
    addCollectionRoutes(app, commands)
    addCommandRoutes(app, commands)
  }
}

function addCollectionRoutes(app: HttpApp, commands: CommandsService): void {
  app.post(
    PATH,
    {
      config: { action: 'command', location: '/{domain_id}/clients/{client_id}/commands/{id}' },
      schema: {
        tags,
        summary: 'Give a command to a client',
        description:
          'It is queued until the device gets it over MQTT, HTTP or CoAP. A client has at most 100 open commands, whose payloads have at most 1 MiB: 422 names the limit. With `wait`, the response follows the end of the command, or the wait: its `status` says which.',
        params: ofClient,
        querystring: WaitQuery,
        headers: IdempotencyHeaders,
        body: NewCommand,
        response: responses({ 201: Command }, 'not_found', 'quota_exceeded', 'rate_limited'),
      },
    },
    async (request, reply) => {
      const { domain_id: domainId, client_id: clientId } = request.params
      const options = {
        idempotencyKey: idempotencyKeyOf(request.headers),
        wait: request.query.wait,
        signal: goneSignal(reply as never),
      }
      const made = await commands.create(request.principal, { domainId, clientId }, request.body, options)
      void reply.code(201).header('Location', `/${domainId}/clients/${clientId}/commands/${made.id}`)
      return presentCommand(made, domainId)
    },
  )
  app.get(
    PATH,
    {
      config: { action: 'read' },
      schema: {
        tags,
        summary: 'List the commands of a client, the newest first',
        description: 'Ended ones are kept for 30 days, and at most 1,000 of a client.',
        params: ofClient,
        querystring: CommandQuery,
        response: responses({ 200: CommandPage }, 'not_found'),
      },
    },
    async (request) => {
      const { domain_id: domainId, client_id: clientId } = request.params
      const { items, ...page } = await commands.list(request.principal, { domainId, clientId }, request.query)
      return { ...page, commands: items.map((one) => presentCommand(one, domainId)) }
    },
  )
}

function addCommandRoutes(app: HttpApp, commands: CommandsService): void {
  app.get(
    ONE,
    {
      config: { action: 'read' },
      schema: {
        tags,
        summary: 'View a command, and its result',
        params: ofCommand,
        response: responses({ 200: Command }, 'not_found'),
      },
    },
    async ({ principal, params: { domain_id: domainId, client_id: clientId, command_id: commandId } }) =>
      presentCommand(await commands.get(principal, { domainId, clientId, commandId }), domainId),
  )
  app.post(
    `${ONE}/cancel`,
    {
      config: { action: 'command' },
      schema: {
        tags,
        summary: 'Cancel a command',
        description:
          'Idempotent. It is no longer offered to the device; a device that has it is not told, and its answer is recorded as late. 409 names the state of a command that has ended otherwise.',
        params: ofCommand,
        response: responses({ 200: Command }, 'not_found', 'invalid_state'),
      },
    },
    async ({ principal, params: { domain_id: domainId, client_id: clientId, command_id: commandId } }) =>
      presentCommand(await commands.cancel(principal, { domainId, clientId, commandId }), domainId),
  )
}
