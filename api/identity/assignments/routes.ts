/** Users of domains, groups, channels and clients in the words of the older generations (contract 4.3). */
import { Type } from 'typebox'
import { NoBody, responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { Id } from '../wire/index.ts'
import { DOMAIN_PLACE, PLACES, targetOf } from './places.ts'
import {
  AssignedPage,
  AssignedQuery,
  Assignment,
  ForceQuery,
  Permissions,
  Unassignment,
  presentAssigned,
} from './schema.ts'
import type { AssignmentsService } from './service.ts'

type PathParams = Record<string, string>

const tags = ['assignments']
const KINDS = ['unauthenticated', 'forbidden', 'not_found', 'conflict'] as const
const paramsOf = (names: readonly string[]) => Type.Object(Object.fromEntries(names.map((name) => [name, Id])))

export function assignmentRoutes(assignments: AssignmentsService): RoutePlugin {
  return (app) => {
    for (const place of PLACES) {
      const { type, path } = place
      const params = paramsOf(place.params)
      const isShared = type === 'client'
      app.post(
        `${path}/${place.assign}`,
        {
          config: { action: 'add_role_users' },
          schema: {
            tags,
            summary: isShared ? 'Share a client with users' : `Assign users to a ${type}`,
            description: 'They become members of the role that the relation names, which is made on first use.',
            params,
            body: Assignment,
            response: responses({ 201: NoBody }, ...KINDS, 'unprocessable'),
          },
        },
        async (request, reply) => {
          const target = targetOf(place, request.params as PathParams)
          await assignments.assign(request.principal, target, request.body)
          return await reply.code(201).send()
        },
      )
      app.post(
        `${path}/${place.unassign}`,
        {
          config: { action: 'remove_role_users' },
          schema: {
            tags,
            summary: isShared ? 'Stop sharing a client with users' : `Take users from a ${type}`,
            description:
              type === 'domain'
                ? 'Without a relation from all their roles in the domain, and then also from those on everything in it.'
                : 'Without a relation from all their roles on it.',
            params,
            querystring: ForceQuery,
            body: Unassignment,
            response: responses({ 204: NoBody }, ...KINDS, 'invalid_state'),
          },
        },
        async (request, reply) => {
          const force = request.query.force === true
          const target = targetOf(place, request.params as PathParams)
          await assignments.unassign(request.principal, target, request.body, { force })
          return await reply.code(204).send()
        },
      )
      app.get(
        `${path}/permissions`,
        {
          config: { action: 'read' },
          schema: {
            tags,
            summary: `List what the caller may do on a ${type}`,
            params,
            response: responses({ 200: Permissions }, ...KINDS),
          },
        },
        async (request) => {
          const target = targetOf(place, request.params as PathParams)
          return { permissions: await assignments.permissions(request.principal, target) }
        },
      )
    }
    const lists = [...PLACES, { ...DOMAIN_PLACE, path: '/:domain_id' }].map((place) => ({ place, word: 'users' }))
    // Groups alone are asked for their members too.
    lists.push(...PLACES.filter(({ type }) => type === 'group').map((place) => ({ place, word: 'members' })))
    for (const { place, word } of lists) {
      app.get(
        `${place.path}/${word}`,
        {
          config: { action: 'view_role_users' },
          schema: {
            tags,
            summary: `List the users of a ${place.type}`,
            description: `Those with a role on the ${place.type} itself; \`roles/members\` shows inherited ones too.`,
            params: paramsOf(place.params),
            querystring: AssignedQuery,
            response: responses({ 200: AssignedPage }, ...KINDS),
          },
        },
        async (request) => {
          const target = targetOf(place, request.params as PathParams)
          const page = await assignments.listUsers(request.principal, target, request.query)
          return presentAssigned(request.principal, page, request.query.only_total)
        },
      )
    }
  }
}
