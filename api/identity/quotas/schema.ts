/** Wire shapes of quotas (contract decision 76). */
import { Type } from 'typebox'
import type { Static, TInteger, TOptional, TUnion, TNull } from 'typebox'
import { documented } from '#http/index.ts'
import { Id } from '../wire/index.ts'
import { DOMAIN_QUOTAS, USER_QUOTAS } from './names.ts'
import type { DomainQuota, QuotaRule, QuotaValues, UserQuota } from './names.ts'

type Fields<N extends string> = { [K in N]: TOptional<TUnion<[TInteger, TNull]>> }

function fieldsOf<N extends string>(rules: Readonly<Record<N, QuotaRule>>): Fields<N> {
  return Object.fromEntries(
    Object.entries<QuotaRule>(rules).map(([name, { description, min, max }]) => [
      name,
      Type.Optional(Type.Union([Type.Integer({ minimum: min, maximum: max }), Type.Null()], { description })),
    ]),
  ) as Fields<N>
}

const own = {
  additionalProperties: false,
  description: 'The own values of this domain or user, which override the defaults',
}
const inForce = { description: 'The values in force; `null`: no limit' }

const DomainValues = Type.Object(fieldsOf(DOMAIN_QUOTAS), { ...own, ...documented({}, 'OwnDomainQuotas') })
const UserValues = Type.Object(fieldsOf(USER_QUOTAS), own)

export const NewDomainQuotas = Type.Object({ own: DomainValues })
export type NewDomainQuotas = Static<typeof NewDomainQuotas>
export const NewUserQuotas = Type.Object({ own: UserValues })
export type NewUserQuotas = Static<typeof NewUserQuotas>

export const DomainQuotas = Type.Object({
  domain_id: Id,
  own: DomainValues,
  quotas: Type.Object(fieldsOf(DOMAIN_QUOTAS), inForce),
})
export type DomainQuotas = Static<typeof DomainQuotas>
export const UserQuotas = Type.Object({
  user_id: Id,
  own: UserValues,
  quotas: Type.Object(fieldsOf(USER_QUOTAS), inForce),
})
export type UserQuotas = Static<typeof UserQuotas>

const Usage = Type.Object(
  {
    limit: Type.Union([Type.Integer(), Type.Null()], { description: '`null`: no limit' }),
    used: Type.Union([Type.Integer(), Type.Null()], {
      description: 'What is used now; of a quota per day, since midnight in UTC. `null`: not an amount',
    }),
  },
  documented({}, 'QuotaUsage'),
)

function usagesOf<N extends string>(rules: Readonly<Record<N, QuotaRule>>): Record<N, typeof Usage> {
  return Object.fromEntries(Object.keys(rules).map((name) => [name, Usage])) as Record<N, typeof Usage>
}

/** A part of the usage of a domain. */
export const DomainQuotaUsage = Type.Object(usagesOf(DOMAIN_QUOTAS), {
  description: 'The quotas of the domain, and what is used of them',
})
export const UserUsage = Type.Object({
  user_id: Id,
  quotas: Type.Object(usagesOf(USER_QUOTAS), { description: 'The quotas of the user, and what is used of them' }),
})
export type UserUsage = Static<typeof UserUsage>

function inForceOf<N extends string>(
  rules: Readonly<Record<N, QuotaRule>>,
  ownValues: QuotaValues<N>,
  defaults: QuotaValues<N>,
): Record<N, number | null> {
  const names = Object.keys(rules) as N[]
  return Object.fromEntries(names.map((name) => [name, ownValues[name] ?? defaults[name] ?? null])) as Record<
    N,
    number | null
  >
}

export function presentDomainQuotas(
  domainId: string,
  values: QuotaValues<DomainQuota>,
  defaults: QuotaValues<DomainQuota>,
): DomainQuotas {
  return { domain_id: domainId, own: { ...values }, quotas: inForceOf(DOMAIN_QUOTAS, values, defaults) }
}

export function presentUserQuotas(
  userId: string,
  values: QuotaValues<UserQuota>,
  defaults: QuotaValues<UserQuota>,
): UserQuotas {
  return { user_id: userId, own: { ...values }, quotas: inForceOf(USER_QUOTAS, values, defaults) }
}
