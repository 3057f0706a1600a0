/** Wire shapes of invitations: one record with the current and the legacy fields (contract 1.3). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { documented } from '#http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import type { Page } from '#core/page.ts'
import { ZERO_TIME, formatTime } from '#core/time.ts'
import { MAX_ADDRESS_CHARS } from '../mail/index.ts'
import { RELATIONS, relationNameOf } from '../roles/index.ts'
import { Id, Timestamp } from '../wire/index.ts'
import type { MailedRecord } from './mailed/repository.ts'
import type { InvitationRecord } from './repository.ts'

export const Invitation = Type.Object(
  {
    invited_by: Id,
    invitee_user_id: Id,
    user_id: Type.String({ description: 'Alias of `invitee_user_id`' }),
    domain_id: Id,
    domain_name: Type.String(),
    relation: Type.Optional(
      Type.String({
        description: 'Relation instead of a role: administrator, editor, contributor, member, viewer or guest',
      }),
    ),
    role_id: Type.Optional(Type.String({ description: 'Id of the role; absent when the role was deleted' })),
    role_name: Type.Optional(Type.String()),
    actions: Type.Optional(Type.Array(Type.String())),
    created_at: Timestamp,
    updated_at: Timestamp,
    expires_at: Type.String({ description: 'Expiry, RFC 3339 in UTC' }),
    confirmed_at: Timestamp,
    rejected_at: Timestamp,
  },
  { $id: 'Invitation', description: 'Invitation' },
)
export type Invitation = Static<typeof Invitation>

const Resend = Type.Optional(
  Type.Boolean({ description: 'Renews an existing invitation: with a full lifetime and without an earlier rejection' }),
)

const Relation = Type.String({
  maxLength: 32,
  description: 'Relation in any case: administrator, editor, contributor, member, viewer or guest',
  ...documented({ enum: [...RELATIONS] }, 'Relation'),
})

/** One of the two that name the invitee, and one of the two that name the role. */
export const NewInvitation = Type.Object({
  invitee_user_id: Type.Optional(Id),
  email: Type.Optional(
    Type.String({
      maxLength: MAX_ADDRESS_CHARS,
      description:
        'Instead of `invitee_user_id`: the address of a person. Without an account, they get a mail with a link to register',
    }),
  ),
  role_id: Type.Optional(Type.String({ minLength: 1, maxLength: 64, description: 'Id of a role of the domain' })),
  relation: Type.Optional(Relation),
  resend: Resend,
})
export type NewInvitation = Static<typeof NewInvitation>

/** The legacy format: a relation in any case, and the domain in the body. */
export const NewRelationInvitation = Type.Object({
  user_id: Id,
  domain_id: Id,
  relation: Relation,
  resend: Resend,
})

export const InvitationAnswer = Type.Object({ domain_id: Id })
export const InvitationDeletion = Type.Object({
  user_id: Type.Optional(Id),
  email: Type.Optional(
    Type.String({
      maxLength: MAX_ADDRESS_CHARS,
      description: 'Instead of `user_id`: an address that was invited by mail',
    }),
  ),
})

const filters = {
  ...pageQuery(),
  invited_by: Type.Optional(Id),
  invitee_user_id: Type.Optional(Id),
  user_id: Type.Optional(Type.String({ maxLength: 36, description: 'Alias of `invitee_user_id`' })),
  role_id: Type.Optional(Type.String({ maxLength: 64 })),
  relation: Type.Optional(
    Type.String({ maxLength: 32, description: 'Relation in any case', ...documented({ enum: [...RELATIONS] }) }),
  ),
  state: Type.Enum(['all', 'pending', 'accepted', 'rejected'], { default: 'all' }),
}
export const DomainInvitationQuery = Type.Object(filters)
export type DomainInvitationQuery = Static<typeof DomainInvitationQuery>
export const InvitationQuery = Type.Object({ ...filters, domain_id: Type.Optional(Id) })
export type InvitationQuery = Static<typeof InvitationQuery>

export const InvitationPage = Type.Object({ ...pageFields, invitations: Type.Array(Invitation) })

/** An invitation that waits for the registration of an address. */
const MailedInvitation = Type.Object({
  email: Type.String(),
  invited_by: Id,
  relation: Type.Optional(Type.String()),
  role_id: Type.Optional(Type.String({ description: 'Id of the role; absent when the role was deleted' })),
  role_name: Type.Optional(Type.String()),
  created_at: Timestamp,
  expires_at: Type.String({ description: 'Expiry of the link, RFC 3339 in UTC' }),
})

export const DomainInvitationPage = Type.Object({
  ...pageFields,
  invitations: Type.Array(Invitation),
  mailed: Type.Array(MailedInvitation, {
    description: 'All addresses that were invited by mail and have not registered, whatever the filters and the page',
  }),
  mail_server: Type.Boolean({
    description:
      '`false`: `SKEIN_SMTP_URL` is not set, so a mail is a file in the data folder of the platform, and an operator must pass it on',
  }),
})

const timeOf = (value: string | null) => (value === null ? ZERO_TIME : formatTime(value))

export function presentInvitation(invitation: InvitationRecord): Invitation {
  const { role } = invitation
  const relation = invitation.relation ?? (role === undefined ? undefined : relationNameOf(role.name))
  return {
    invited_by: invitation.invitedBy,
    invitee_user_id: invitation.userId,
    user_id: invitation.userId,
    domain_id: invitation.domainId,
    domain_name: invitation.domainName,
    ...(relation === undefined ? {} : { relation }),
    ...(role === undefined ? {} : { role_id: role.id, role_name: role.name, actions: [...role.actions] }),
    created_at: formatTime(invitation.createdAt),
    updated_at: timeOf(invitation.updatedAt),
    expires_at: formatTime(invitation.expiresAt),
    confirmed_at: timeOf(invitation.confirmedAt),
    rejected_at: timeOf(invitation.rejectedAt),
  }
}

const presentMailed = ({ email, invitedBy, relation, role, createdAt, expiresAt }: MailedRecord) => ({
  email,
  invited_by: invitedBy,
  ...(relation === null ? {} : { relation }),
  ...(role === undefined ? {} : { role_id: role.id, role_name: role.name }),
  created_at: formatTime(createdAt),
  expires_at: formatTime(expiresAt),
})

export function presentDomainPage({
  mailed,
  hasMailServer,
  ...page
}: Page<InvitationRecord> & { mailed: readonly MailedRecord[]; hasMailServer: boolean }) {
  return { ...presentPage(page), mailed: mailed.map(presentMailed), mail_server: hasMailServer }
}

export function presentPage({ total, offset, limit, items, next }: Page<InvitationRecord>) {
  return { total, offset, limit, invitations: items.map(presentInvitation), next }
}
