/** Wire shapes of personal access tokens and their scopes (contract section 6). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { SECRET, documented } from '#http/index.ts'
import { Direction, pageFields, pageQuery } from '#core/page.ts'
import { DURATION_PATTERN, formatTime } from '#core/time.ts'
import { SCOPE_ENTITY_TYPES, SCOPE_OPERATIONS } from '../access/index.ts'
import { Id, RequiredName, Timestamp } from '../wire/index.ts'
import { PAT_STATUSES } from './record.ts'
import type { PatRecord, ScopeRecord } from './record.ts'

const MAX_DESCRIPTION_CHARS = 4096
const MAX_DURATION_CHARS = 64
/** Maximum number of scopes in one request. */
const MAX_SCOPES_PER_CALL = 1000

export const Pat = Type.Object(
  {
    id: Type.String(),
    user_id: Type.String(),
    name: Type.String(),
    description: Type.String(),
    secret: Type.Optional(
      Type.String({ ...SECRET, description: 'Secret of the token; only in responses that create or reset it' }),
    ),
    issued_at: Timestamp,
    expires_at: Timestamp,
    updated_at: Timestamp,
    last_used_at: Timestamp,
    revoked: Type.Boolean(),
    revoked_at: Timestamp,
    status: Type.Enum([...PAT_STATUSES]),
  },
  { $id: 'Pat', description: 'Personal access token' },
)
export type Pat = Static<typeof Pat>

export const PatPage = Type.Object({ ...pageFields, pats: Type.Array(Pat) }, { $id: 'PatPage' })

const Duration = Type.String({
  minLength: 1,
  maxLength: MAX_DURATION_CHARS,
  description: 'Lifetime, such as 24h, 90m or 1h30m',
  ...documented({ pattern: DURATION_PATTERN }),
})
const Description = Type.String({ maxLength: MAX_DESCRIPTION_CHARS })

export const NewPat = Type.Object(
  { name: RequiredName, description: Type.Optional(Description), duration: Duration },
  { $id: 'PatCreate' },
)
export type NewPat = Static<typeof NewPat>

export const PatName = Type.Object({ name: RequiredName })
export const PatDescription = Type.Object({ description: Description })
export const PatDuration = Type.Object({ duration: Duration })

export const PatQuery = Type.Object({
  ...pageQuery(),
  name: Type.Optional(Type.String({ maxLength: 1024, description: 'Substring of the name' })),
  id: Type.Optional(Id),
  status: Type.Enum([...PAT_STATUSES, 'all'], { default: 'all' }),
  dir: Type.Optional(Direction),
})
export type PatQuery = Static<typeof PatQuery>

export const ScopeQuery = Type.Object(pageQuery())
export type ScopeQuery = Static<typeof ScopeQuery>

const DomainOfScope = Type.String({
  maxLength: 36,
  description: 'Id of the domain; required for groups, channels and clients',
})

export const NewScope = Type.Object(
  {
    optional_domain_id: Type.Optional(DomainOfScope),
    domain_id: Type.Optional(DomainOfScope),
    entity_type: Type.Enum([...SCOPE_ENTITY_TYPES]),
    entity_id: Type.String({ minLength: 1, maxLength: 36, description: 'UUID, or `*` for any' }),
    operation: Type.Enum([...SCOPE_OPERATIONS]),
  },
  { $id: 'PatScopeCreate' },
)
export type NewScope = Static<typeof NewScope>

export const ScopesToAdd = Type.Object({
  scopes: Type.Array(NewScope, { minItems: 1, maxItems: MAX_SCOPES_PER_CALL }),
})
export const ScopesToRemove = Type.Object({ scopes_id: Type.Array(Id, { minItems: 1, maxItems: MAX_SCOPES_PER_CALL }) })

export const PatScope = Type.Object(
  {
    id: Type.String(),
    pat_id: Type.String(),
    optional_domain_id: Type.String({ description: 'Id of the domain; empty without one' }),
    domain_id: Type.String({ description: 'Same value as `optional_domain_id`' }),
    entity_type: Type.Enum([...SCOPE_ENTITY_TYPES]),
    entity_id: Type.String({ description: 'UUID, or `*` for any' }),
    operation: Type.Enum([...SCOPE_OPERATIONS]),
  },
  { $id: 'PatScope', description: 'Scope of a personal access token' },
)

export const PatScopes = Type.Object({ scopes: Type.Array(PatScope) }, { $id: 'PatScopes' })
export const PatScopePage = Type.Object({ ...pageFields, scopes: Type.Array(PatScope) }, { $id: 'PatScopePage' })

export function presentPat(pat: PatRecord, secret?: string): Pat {
  return {
    id: pat.id,
    user_id: pat.userId,
    name: pat.name,
    description: pat.description,
    ...(secret === undefined ? {} : { secret }),
    issued_at: formatTime(pat.issuedAt),
    expires_at: formatTime(pat.expiresAt),
    updated_at: formatTime(pat.updatedAt),
    last_used_at: formatTime(pat.lastUsedAt),
    revoked: pat.revokedAt !== null,
    revoked_at: formatTime(pat.revokedAt),
    status: pat.status,
  }
}

export function presentScope(scope: ScopeRecord): Static<typeof PatScope> {
  const domainId = scope.domainId ?? ''
  return {
    id: scope.id,
    pat_id: scope.patId,
    optional_domain_id: domainId,
    domain_id: domainId,
    entity_type: scope.type,
    entity_id: scope.entityId ?? '*',
    operation: scope.operation,
  }
}
