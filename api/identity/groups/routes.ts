/**
 * Group routes, with a domain in the path and without (specification section 4 Groups, contract section 3, decision
 * 31b).
 */
import { Type } from 'typebox'
import { NoBody, responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import type { Page } from '#core/page.ts'
import { Id } from '../wire/index.ts'
import {
  Group,
  GroupPage,
  GroupQuery,
  GroupUpdate,
  GroupView,
  NewGroup,
  TagsUpdate,
  ViewQuery,
  presentGroup,
  presentListed,
} from './schema.ts'
import type { GroupsService, ListedGroup, WithAccess } from './service.ts'
import { nest, presentTree } from './tree.ts'

/** Paths of a group: below its domain, or by its id alone in the domains that the caller has access to. */
export const GROUP_PATHS = [
  { base: '/:domain_id/groups/:group_id', params: Type.Object({ domain_id: Id, group_id: Id }) },
  { base: '/groups/:group_id', params: Type.Object({ group_id: Id }) },
] as const
const COLLECTION_PATHS = [
  { base: '/:domain_id/groups', params: Type.Object({ domain_id: Id }) },
  { base: '/groups', params: Type.Object({}) },
] as const
const tags = ['groups']

/** Returns the address of the group in a path. */
export function addressOf(params: unknown): { domainId: string | undefined; id: string } {
  const { domain_id: domainId, group_id: id } = params as { domain_id?: string; group_id: string }
  return { domainId, id }
}

/** Presents the page as the query requests it: flat, nested, or only the total. */
export function presentPage(
  page: Page<WithAccess<ListedGroup>>,
  query: { tree?: boolean; only_total?: boolean },
): GroupPage {
  const { total, offset, limit, items, next } = page
  if (query.only_total === true) return { total, groups: [] }
  const groups = query.tree === true ? presentTree(nest(items), presentListed) : items.map(presentListed)
  return { total, offset, limit, groups, next }
}

export function groupRoutes(groups: GroupsService): RoutePlugin {
  return (app) => {
    for (const path of COLLECTION_PATHS) {
      addCollectionRoutes(app, groups, path)
    }
    for (const path of GROUP_PATHS) {
      addGroupRoutes(app, groups, path)
    }
  }
}

/** Adds the routes that create and list groups. */
function addCollectionRoutes(
  app: HttpApp,
  groups: GroupsService,
  { base, params }: (typeof COLLECTION_PATHS)[number],
): void {
  app.post(
    base,
    {
      config: { action: 'group_create', location: '/groups/{id}' },
      schema: {
        tags,
        summary: 'Create a group',
        description:
          'With `parent_id` the group is created below that group, which requires `subgroup_create` or `set_child` on it. Without a domain in the path it uses the domain of the token, or the only domain of the caller.',
        params,
        body: NewGroup,
        response: responses({ 201: Group }, 'unprocessable'),
      },
    },
    async (request, reply) => {
      const { domain_id: domainId } = request.params as { domain_id?: string }
      const group = await groups.create(request.principal, domainId, request.body)
      void reply.code(201).header('Location', `/groups/${group.id}`)
      return presentGroup(group)
    },
  )
  app.get(
    base,
    {
      config: { action: 'group_read' },
      schema: {
        tags,
        summary: 'List groups',
        description:
          'Returns the groups that the caller may read. Without a domain in the path it searches all domains of the caller.',
        params,
        querystring: GroupQuery,
        response: responses({ 200: GroupPage }, 'unprocessable'),
      },
    },
    async (request) => {
      const { domain_id: domainId } = request.params as { domain_id?: string }
      return presentPage(await groups.list(request.principal, domainId, request.query), request.query)
    },
  )
}

/** Adds the routes of one group. */
function addGroupRoutes(app: HttpApp, groups: GroupsService, { base, params }: (typeof GROUP_PATHS)[number]): void {
  app.get(
    base,
    {
      config: { action: 'read' },
      schema: {
        tags,
        summary: 'View a group',
        params,
        querystring: ViewQuery,
        response: responses({ 200: GroupView }, 'not_found', 'conflict'),
      },
    },
    async (request) => {
      const { query } = request
      const { group, roles } = await groups.get(request.principal, addressOf(request.params), query.roles === true)
      return { ...presentListed(group), ...roles }
    },
  )
  app.route({
    // Newer clients send PUT, and every other resource accepts PATCH. Both follow the same rule (decision 2).
    method: ['PUT', 'PATCH'],
    url: base,
    config: { action: 'update' },
    schema: {
      tags,
      summary: 'Change a group; absent fields are unchanged',
      description:
        '`description: null` clears the description. `/parent` and `/children` change the place in the hierarchy.',
      params,
      body: GroupUpdate,
      response: responses({ 200: Group }, 'not_found', 'conflict'),
    },
    handler: async (request) =>
      presentGroup(await groups.update(request.principal, addressOf(request.params), request.body)),
  })
  app.patch(
    `${base}/tags`,
    {
      config: { action: 'update' },
      schema: {
        tags,
        summary: 'Replace the tags; absent `tags` remove all of them',
        params,
        body: TagsUpdate,
        response: responses({ 200: Group }, 'not_found', 'conflict'),
      },
    },
    async (request) =>
      presentGroup(
        await groups.update(request.principal, addressOf(request.params), { tags: request.body.tags ?? [] }),
      ),
  )
  for (const [verb, status, effect] of [
    ['enable', 'enabled', 'The group can become a parent again.'],
    ['disable', 'disabled', 'The group cannot become a parent. Its members and descendants keep their own status.'],
  ] as const) {
    app.post(
      `${base}/${verb}`,
      {
        config: { action: 'update' },
        schema: {
          tags,
          summary: `${verb === 'enable' ? 'Enable' : 'Disable'} a group`,
          description: `${effect} Idempotent.`,
          params,
          response: responses({ 200: Group }, 'not_found', 'conflict'),
        },
      },
      async (request) => presentGroup(await groups.setStatus(request.principal, addressOf(request.params), status)),
    )
  }
  app.delete(
    base,
    {
      config: { action: 'delete', dryRun: true },
      schema: {
        tags,
        summary: 'Delete a group and its roles',
        description: 'Its children become root groups. Its clients and channels lose their parent.',
        params,
        response: responses({ 204: NoBody }, 'not_found', 'conflict'),
      },
    },
    async (request, reply) => {
      await groups.remove(request.principal, addressOf(request.params))
      return await reply.code(204).send()
    },
  )
}
