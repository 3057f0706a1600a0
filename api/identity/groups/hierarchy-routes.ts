/** Routes of the hierarchy of groups (contract section 3, decision 26), with a domain in the path and without. */
import { NoBody, responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import type { GroupHierarchyService } from './hierarchy.ts'
import type { MovesService } from './moves.ts'
import { GROUP_PATHS, addressOf, presentPage } from './routes.ts'
import {
  ChildrenQuery,
  ChildrenUpdate,
  GroupPage,
  Hierarchy,
  HierarchyQuery,
  ParentUpdate,
  ParentsQuery,
  presentHierarchical,
} from './schema.ts'
import { nest, presentTree } from './tree.ts'

const tags = ['groups']

export function hierarchyRoutes(hierarchy: GroupHierarchyService, moves: MovesService): RoutePlugin {
  return (app) => {
    for (const path of GROUP_PATHS) {
      addListRoutes(app, hierarchy, path)
      addParentRoutes(app, moves, path)
      addChildrenRoutes(app, moves, path)
    }
  }
}

/** Adds the routes that list the ancestors and descendants of a group. */
function addListRoutes(
  app: HttpApp,
  hierarchy: GroupHierarchyService,
  { base, params }: (typeof GROUP_PATHS)[number],
): void {
  app.get(
    `${base}/hierarchy`,
    {
      config: { action: 'read' },
      schema: {
        tags,
        summary: 'View the ancestors or descendants of a group',
        description:
          'Includes the group. Levels are counted from the root. Groups that the caller may not read contain only their level.',
        params,
        querystring: HierarchyQuery,
        response: responses({ 200: Hierarchy }, 'not_found', 'conflict', 'unprocessable'),
      },
    },
    async (request) => {
      const { level, dir: direction, tree } = request.query
      const kin = await hierarchy.hierarchy(request.principal, addressOf(request.params), request.query)
      const groups = tree === true ? presentTree(nest(kin), presentHierarchical) : kin.map(presentHierarchical)
      return { level, direction, groups }
    },
  )
  app.get(
    `${base}/parents`,
    {
      config: { action: 'read' },
      schema: {
        tags,
        summary: 'List the ancestors of a group',
        description:
          'Level -1 is the parent. With `tree=true` each ancestor contains the next one in `children`, beginning with the root.',
        params,
        querystring: ParentsQuery,
        response: responses({ 200: GroupPage }, 'not_found', 'conflict'),
      },
    },
    async (request) =>
      presentPage(await hierarchy.parents(request.principal, addressOf(request.params), request.query), request.query),
  )
  app.get(
    `${base}/children`,
    {
      config: { action: 'read' },
      schema: {
        tags,
        summary: 'List the descendants of a group',
        description: 'Level 1 are the children. Lists only level 1 unless `start_level`, `end_level` or `tree` is set.',
        params,
        querystring: ChildrenQuery,
        response: responses({ 200: GroupPage }, 'not_found', 'conflict'),
      },
    },
    async (request) =>
      presentPage(await hierarchy.children(request.principal, addressOf(request.params), request.query), request.query),
  )
}

/** Adds the routes that set and remove the parent of a group. */
function addParentRoutes(app: HttpApp, moves: MovesService, { base, params }: (typeof GROUP_PATHS)[number]): void {
  app.post(
    `${base}/parent`,
    {
      config: { action: 'set_parent' },
      schema: {
        tags,
        summary: 'Set the parent of a group',
        description: 'Requires `set_child` on the parent. Replaces the current parent.',
        params,
        body: ParentUpdate,
        response: responses({ 200: NoBody }, 'not_found', 'conflict', 'unprocessable'),
      },
    },
    async (request, reply) => {
      await moves.setParent(request.principal, addressOf(request.params), request.body.parent_id)
      return await reply.code(200).send()
    },
  )
  app.delete(
    `${base}/parent`,
    {
      config: { action: 'set_parent' },
      schema: {
        tags,
        summary: 'Make a group a root',
        description:
          'The subtree of the group is unchanged. Requires `set_child` on the parent. Has no effect on a root group.',
        params,
        response: responses({ 204: NoBody }, 'not_found', 'conflict', 'unprocessable'),
      },
    },
    async (request, reply) => {
      await moves.removeParent(request.principal, addressOf(request.params))
      return await reply.code(204).send()
    },
  )
}

/** Adds the routes that add and remove children of a group. */
function addChildrenRoutes(app: HttpApp, moves: MovesService, { base, params }: (typeof GROUP_PATHS)[number]): void {
  for (const [method, success, summary, description] of [
    ['POST', 200, 'Add children to a group, all or none', 'Requires `set_parent` on each of them.'],
    [
      'DELETE',
      204,
      'Remove children from a group, all or none',
      'The children become root groups. Requires `set_parent` on each of them. A group without a parent is not an error.',
    ],
  ] as const) {
    app.route({
      method,
      url: `${base}/children`,
      config: { action: 'set_child' },
      schema: {
        tags,
        summary,
        description,
        params,
        body: ChildrenUpdate,
        response: responses({ [success]: NoBody }, 'not_found', 'conflict', 'unprocessable'),
      },
      handler: async (request, reply) => {
        const { children_ids: ids } = request.body
        const change = method === 'POST' ? 'addChildren' : 'removeChildren'
        await moves[change](request.principal, addressOf(request.params), ids)
        return await reply.code(success).send()
      },
    })
  }
  app.delete(
    `${base}/children/all`,
    {
      config: { action: 'set_child' },
      schema: {
        tags,
        summary: 'Remove all children from a group',
        description: 'The children become root groups. Requires `set_parent` on each of them.',
        params,
        response: responses({ 204: NoBody }, 'not_found', 'conflict'),
      },
    },
    async (request, reply) => {
      await moves.removeAllChildren(request.principal, addressOf(request.params))
      return await reply.code(204).send()
    },
  )
}
