/** Lets Fastify infer handler types from TypeBox schemas. */
import type { FastifyTypeProvider } from 'fastify'
import type { Static, TSchema } from 'typebox'

export interface SchemaTypes extends FastifyTypeProvider {
  validator: this['schema'] extends TSchema ? Static<this['schema']> : unknown
  serializer: this['schema'] extends TSchema ? Static<this['schema']> : unknown
}
