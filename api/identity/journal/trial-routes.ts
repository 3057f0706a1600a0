/** Routes with `config.dryRun` accept `dry_run=true`: the change is reported and not made. */
import { Type } from 'typebox'
import type { TObject } from 'typebox'
import type { FastifyInstance } from 'fastify'
import { runTrial } from './trial.ts'
import type { TrialFilter } from './trial.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route accepts `dry_run=true`: its first change through the journal is reported and rolled back. */
    dryRun?: boolean
  }
}

const dryRun = Type.Optional(
  Type.Boolean({
    description: 'Returns what would happen, and changes nothing. The answer is a `DryRun` with status 200',
  }),
)

const Count = Type.Integer()
export const DryRun = Type.Object(
  {
    total: Type.Integer({ description: 'Number of changes' }),
    hidden: Type.Optional(
      Type.Integer({
        description: 'Number of changes of entities that the caller may not read; `total` contains them',
      }),
    ),
    changes: Type.Array(
      Type.Object({
        operation: Type.String({ description: 'As in the journal, for example `client.remove`' }),
        id: Type.Optional(Type.String()),
        name: Type.Optional(Type.String()),
        attributes: Type.Unknown({ description: 'As in the journal' }),
      }),
      { description: 'The first 1,000 of entities that the caller may read' },
    ),
    rows: Type.Array(
      Type.Object({
        table: Type.String(),
        created: Count,
        updated: Count,
        deleted: Count,
        exact: Type.Optional(Type.Boolean({ description: 'Only `false`: counting was ended; at least so many' })),
      }),
      { description: 'Rows that would be written or deleted, also those that belong to what is deleted' },
    ),
  },
  { $id: 'DryRun', description: 'What a change would do' },
)

/** Rooms can share an app: its routes are prepared once. */
const prepared = new WeakSet<FastifyInstance>()

/**
 * Call it before the routes are added. Calling it again for the same app has no effect. Without a filter the records of changes are counted
 * and not shown.
 */
export function registerTrials(app: FastifyInstance, filter?: TrialFilter): void {
  if (prepared.has(app)) return
  prepared.add(app)
  app.addHook('onRoute', (route) => {
    if (route.config?.dryRun !== true) return
    const { handler } = route
    const schema = (route.schema ??= {})
    const query = schema.querystring as TObject | undefined
    schema.querystring = Type.Object({ ...query?.properties, dry_run: dryRun })
    const response = schema.response as Record<number, unknown>
    // The responses of a status with two forms are written by the serializer of the first, which costs no check of the form.
    if (response[200] === undefined) schema.response = { ...response, 200: DryRun }
    else route.config.otherResponses = { 200: DryRun }
    route.handler = async function answer(request, reply) {
      if ((request.query as { dry_run?: boolean }).dry_run !== true) return await handler.call(this, request, reply)
      const report = await runTrial(async () => await handler.call(this, request, reply), filter)
      // A call that changes nothing has sent its own answer.
      if (reply.sent) return reply
      return await reply
        .code(200)
        .type('application/json; charset=utf-8')
        .serializer((value: unknown) => JSON.stringify(value))
        .send(report)
    }
  })
}
