/** Wire shapes of users (specification section 2, contract section 5, decision 50). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Direction, pageFields, pageQuery } from '#core/page.ts'
import { ZERO_TIME, formatTime } from '#core/time.ts'
import { Group } from '../groups/index.ts'
import {
  EnabledStatus,
  Id,
  Metadata,
  MetadataFilter,
  Name,
  OrderKey,
  PrivateMetadata,
  RequiredName,
  Tags,
  TagsFilter,
  Timestamp,
  createdFields,
} from '../wire/index.ts'
import type { UserRecord } from './repository.ts'

const Email = Type.String({ maxLength: 254, description: 'Email address; unique' })
const Username = Type.String({ maxLength: 254, description: 'Username: at most 32 letters, digits, _ and -; unique' })
/** argon2 accepts any length. This limit bounds the work. */
const Password = Type.String({ minLength: 1, maxLength: 1024 })
const MAX_PICTURE_URL_CHARS = 2048
const Picture = Type.String({ maxLength: MAX_PICTURE_URL_CHARS, description: 'URL of the picture' })

export const User = Type.Object(
  {
    id: Id,
    first_name: Type.Optional(Type.String()),
    last_name: Type.Optional(Type.String()),
    name: Type.Optional(Type.String({ description: 'Display name; defaults to first and last name' })),
    email: Type.Optional(Type.String()),
    credentials: Type.Optional(
      Type.Object({
        username: Type.Optional(Type.String()),
        identity: Type.Optional(Type.String({ description: 'Email, or the username without an email' })),
      }),
    ),
    tags: Type.Optional(Type.Array(Type.String())),
    metadata: Type.Optional(Metadata),
    private_metadata: Type.Optional(PrivateMetadata),
    profile_picture: Type.Optional(Type.String()),
    role: Type.Optional(Type.Enum(['user', 'admin'])),
    status: Type.Optional(Type.Enum(['enabled', 'disabled', 'deleted'])),
    owner: Type.Optional(Id),
    created_at: Type.Optional(Timestamp),
    updated_at: Type.Optional(Timestamp),
    updated_by: Type.Optional(Id),
    verified_at: Type.Optional(
      Type.String({ description: 'Time of the verification of the email address; absent when it is not verified' }),
    ),
  },
  { $id: 'User', description: 'User' },
)
export type User = Static<typeof User>

export const NewUser = Type.Object(
  {
    first_name: Type.Optional(Name),
    last_name: Type.Optional(Name),
    name: Type.Optional(Type.String({ maxLength: 1024, description: 'Display name; legacy format' })),
    email: Type.Optional(Email),
    credentials: Type.Object({
      username: Type.Optional(Username),
      identity: Type.Optional(Type.String({ maxLength: 254, description: 'Email or username; legacy format' })),
      secret: Password,
    }),
    tags: Type.Optional(Tags),
    metadata: Type.Optional(Metadata),
    private_metadata: Type.Optional(PrivateMetadata),
    profile_picture: Type.Optional(Picture),
    status: Type.Optional(EnabledStatus),
    role: Type.Optional(Type.Enum(['user', 'admin'], { description: 'Role; requires a platform administrator' })),
  },
  { $id: 'UserCreate' },
)
export type NewUser = Static<typeof NewUser>

export const UserUpdate = Type.Object({
  first_name: Type.Optional(RequiredName),
  last_name: Type.Optional(RequiredName),
  name: Type.Optional(Type.String({ maxLength: 1024, description: 'Display name; legacy format; empty removes it' })),
  metadata: Type.Optional(Metadata),
  private_metadata: Type.Optional(PrivateMetadata),
})
export type UserUpdate = Static<typeof UserUpdate>

export const TagsUpdate = Type.Object({ tags: Type.Optional(Tags) })
export const PictureUpdate = Type.Object({ profile_picture: Picture })
export const EmailUpdate = Type.Object({ email: Email })
export const UsernameUpdate = Type.Object({ username: Username })
export const RoleUpdate = Type.Object({ role: Type.Enum(['user', 'admin']) })
export const SecretUpdate = Type.Object({ old_secret: Password, new_secret: Password })

export const ResetRequest = Type.Object({ email: Type.String({ minLength: 1, maxLength: 254 }) })
export const ResetRequested = Type.Object({ msg: Type.String() })
/** Current clients send the token as bearer token, older ones in the body. */
export const SecretReset = Type.Object({
  token: Type.Optional(
    Type.String({ maxLength: 4096, description: 'Token from the mail; required without a bearer token' }),
  ),
  password: Password,
  confirm_password: Password,
})
export const NothingMore = Type.Object({})
export const ResetPage = Type.String({ description: 'HTML page' })

export const VerifyQuery = Type.Object({ token: Type.String({ minLength: 1, maxLength: 4096 }) })

export const StatusQuery = Type.Object({
  force: Type.Optional(
    Type.Boolean({
      description: 'Only for platform administrators: take over domains that would lose their last administrator',
    }),
  ),
})

export const UserQuery = Type.Object({
  ...pageQuery(),
  status: Type.Enum(['enabled', 'disabled', 'deleted', 'all'], { default: 'enabled' }),
  visibility: Type.Enum(['all', 'mine', 'shared'], { default: 'all' }),
  metadata: Type.Optional(MetadataFilter),
  identity: Type.Optional(Type.String({ maxLength: 254 })),
  username: Type.Optional(Type.String({ maxLength: 254 })),
  email: Type.Optional(Type.String({ maxLength: 254 })),
  name: Type.Optional(Name),
  first_name: Type.Optional(Name),
  last_name: Type.Optional(Name),
  tag: Type.Optional(Name),
  tags: TagsFilter,
  id: Type.Optional(Id),
  ...createdFields,
  order: OrderKey,
  dir: Type.Optional(Direction),
  only_total: Type.Optional(Type.Boolean()),
})
export type UserQuery = Static<typeof UserQuery>

const SearchText = Type.Optional(Type.String({ maxLength: 1024, description: 'Substring of at least 3 characters' }))

export const SearchQuery = Type.Object({
  ...pageQuery(),
  name: SearchText,
  username: SearchText,
  email: SearchText,
  first_name: SearchText,
  last_name: SearchText,
  id: Type.Optional(Id),
  order: OrderKey,
  dir: Type.Optional(Direction),
})
export type SearchQuery = Static<typeof SearchQuery>

/** The username is in two places: that of the specification, and that of other user records. */
export const FoundUser = Type.Object(
  {
    id: Id,
    username: Type.Optional(Type.String()),
    email: Type.Optional(Type.String()),
    first_name: Type.Optional(Type.String()),
    last_name: Type.Optional(Type.String()),
    credentials: Type.Object({ username: Type.Optional(Type.String()) }),
  },
  { $id: 'FoundUser', description: 'User in search results' },
)
export type FoundUser = Static<typeof FoundUser>

export const FoundUserPage = Type.Object({ ...pageFields, users: Type.Array(FoundUser) })

export const MembershipPage = Type.Object({ ...pageFields, memberships: Type.Array(Group) })

export const UserPage = Type.Object({ ...pageFields, users: Type.Array(User) })

function displayName(user: UserRecord): string | undefined {
  return user.name ?? ([user.firstName, user.lastName].filter((part) => part !== null).join(' ') || undefined)
}

/** Presents the record to callers who may change it: the user and platform administrators. */
export function presentUser(user: UserRecord): User {
  const { privateMetadata } = user
  const isEmpty = Object.keys(privateMetadata).length === 0
  return { ...presentOwned(user), ...(isEmpty ? {} : { private_metadata: privateMetadata }) }
}

/** Presents the record to the owner of the user: without the secret and the private metadata. */
export function presentOwned(user: UserRecord): User {
  const name = displayName(user)
  const identity = user.email ?? user.username
  return {
    id: user.id,
    ...(user.firstName === null ? {} : { first_name: user.firstName }),
    ...(user.lastName === null ? {} : { last_name: user.lastName }),
    ...(name === undefined ? {} : { name }),
    ...(user.email === null ? {} : { email: user.email }),
    credentials: {
      ...(user.username === null ? {} : { username: user.username }),
      ...(identity === null ? {} : { identity }),
    },
    tags: user.tags,
    metadata: user.metadata,
    ...(user.profilePicture === null ? {} : { profile_picture: user.profilePicture }),
    role: user.role,
    status: user.status,
    ...(user.createdBy === null ? {} : { owner: user.createdBy }),
    created_at: formatTime(user.createdAt),
    updated_at: user.updatedAt === null ? ZERO_TIME : formatTime(user.updatedAt),
    ...(user.updatedBy === null ? {} : { updated_by: user.updatedBy }),
    ...(user.verifiedAt === null ? {} : { verified_at: formatTime(user.verifiedAt) }),
  }
}

/** Presents an item of a search. */
export function presentFound(user: UserRecord): FoundUser {
  const username = user.username === null ? {} : { username: user.username }
  return {
    id: user.id,
    ...username,
    ...(user.email === null ? {} : { email: user.email }),
    ...(user.firstName === null ? {} : { first_name: user.firstName }),
    ...(user.lastName === null ? {} : { last_name: user.lastName }),
    credentials: username,
  }
}

/** Presents the fields that other users may see: id, first and last name, username (contract section 5). */
export function presentPublic(user: UserRecord): User {
  const name = displayName(user)
  return {
    id: user.id,
    ...(user.firstName === null ? {} : { first_name: user.firstName }),
    ...(user.lastName === null ? {} : { last_name: user.lastName }),
    ...(name === undefined ? {} : { name }),
    credentials: user.username === null ? {} : { username: user.username },
  }
}
