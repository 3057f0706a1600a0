/**
 * The routes that clients and channels share: view, tags, status and parent group, each with a domain in the path and
 * without.
 */
import type { TSchema } from 'typebox'
import { NoBody, responses } from '#http/index.ts'
import type { HttpApp, RouteRefusal } from '#http/index.ts'
import type { UserPrincipal } from '#api/identity/index.ts'
import type { ConnectableType, EnabledStatus } from './record.ts'
import { ParentUpdate, TagsUpdate, ViewQuery, entityPaths } from './schema.ts'
import type { EntityPath } from './schema.ts'
import type { Address } from './service.ts'

/** Description of a path without a domain. */
const WITHOUT_DOMAIN =
  'Searches the domains that the caller has access to. Returns 409 when the id exists in several of them.'

/** Returns the address from the parameters of any path of `entityPaths`. */
export function addressOf(type: ConnectableType | 'group' | 'user', params: unknown): Address {
  const values = params as Readonly<Record<string, string | undefined>>
  return { domainId: values['domain_id'], id: values[`${type}_id`] ?? '' }
}

/** Returns the domain of a path of `collectionPaths`. */
export function domainOf(params: unknown): string | undefined {
  return (params as Readonly<Record<string, string | undefined>>)['domain_id']
}

/** Schema of a route of one entity, with the errors that all of these routes return. */
export function entitySchema<S extends Record<number, TSchema>>(
  path: EntityPath,
  options: { tags: string[]; summary: string; description?: string; successes: S; kinds?: readonly RouteRefusal[] },
) {
  const kinds = new Set<RouteRefusal>(['not_found', ...(options.kinds ?? [])])
  if (!path.isScoped) kinds.add('conflict')
  const description = [options.description, path.isScoped ? undefined : WITHOUT_DOMAIN].filter(
    (text) => text !== undefined,
  )
  return {
    tags: options.tags,
    summary: options.summary,
    ...(description.length === 0 ? {} : { description: description.join(' ') }),
    params: path.params,
    response: responses(options.successes, ...kinds),
  }
}

/** The service calls of the shared routes. Each returns the record in its wire format. */
export type ConnectableCalls = {
  view(caller: UserPrincipal, at: Address, withRoles: boolean): Promise<unknown>
  setTags(caller: UserPrincipal, at: Address, tags: string[]): Promise<unknown>
  setStatus(caller: UserPrincipal, at: Address, status: EnabledStatus): Promise<unknown>
  setParent(caller: UserPrincipal, at: Address, groupId: string): Promise<void>
  removeParent(caller: UserPrincipal, at: Address): Promise<void>
}

export function connectableRoutes(
  app: HttpApp,
  { type, record, calls }: { type: ConnectableType; record: TSchema; calls: ConnectableCalls },
): void {
  const tags = [`${type}s`]
  for (const path of entityPaths(type)) {
    app.get(
      path.base,
      {
        config: { action: 'read' },
        schema: {
          ...entitySchema(path, { tags, summary: `View a ${type}`, successes: { 200: record } }),
          querystring: ViewQuery,
        },
      },
      (request) => calls.view(request.principal, addressOf(type, request.params), request.query.roles === true),
    )
    app.patch(
      `${path.base}/tags`,
      {
        config: { action: 'update' },
        schema: {
          ...entitySchema(path, {
            tags,
            summary: 'Replace the tags; absent `tags` remove all of them',
            successes: { 200: record },
          }),
          body: TagsUpdate,
        },
      },
      (request) => calls.setTags(request.principal, addressOf(type, request.params), request.body.tags ?? []),
    )
    for (const [verb, status] of [
      ['enable', 'enabled'],
      ['disable', 'disabled'],
    ] as const) {
      app.post(
        `${path.base}/${verb}`,
        {
          config: { action: 'update' },
          schema: entitySchema(path, {
            tags,
            summary: `${verb === 'enable' ? 'Enable' : 'Disable'} a ${type}`,
            description: 'Idempotent.',
            successes: { 200: record },
          }),
        },
        (request) => calls.setStatus(request.principal, addressOf(type, request.params), status),
      )
    }
    app.post(
      `${path.base}/parent`,
      {
        config: { action: 'set_parent_group' },
        schema: {
          ...entitySchema(path, {
            tags,
            summary: `Put a ${type} into a group`,
            description:
              'Also requires `set_child` on the group. Setting the current parent has no effect. Another parent must be removed first.',
            successes: { 200: NoBody },
            kinds: ['conflict', 'unprocessable'],
          }),
          body: ParentUpdate,
        },
      },
      async (request, reply) => {
        await calls.setParent(request.principal, addressOf(type, request.params), request.body.parent_group_id)
        return await reply.code(200).send()
      },
    )
    app.delete(
      `${path.base}/parent`,
      {
        config: { action: 'set_parent_group' },
        schema: entitySchema(path, {
          tags,
          summary: `Take a ${type} out of its group`,
          description: 'Also requires `set_child` on the group. Has no effect without a parent.',
          successes: { 204: NoBody },
        }),
      },
      async (request, reply) => {
        await calls.removeParent(request.principal, addressOf(type, request.params))
        return await reply.code(204).send()
      },
    )
  }
}
