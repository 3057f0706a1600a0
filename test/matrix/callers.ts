/** The columns of the access matrix: who calls, and in which domain. */

/** The domains of the matrix, alike but for their status. */
export type Place = 'open' | 'disabled' | 'frozen' | 'deleted'

/** How a member comes to what the call needs (contract 2.4); the roles are created for every row. */
export type Path = 'none' | 'read' | 'rest' | 'half' | 'direct' | 'group' | 'ancestor' | 'domain'

export type Column = {
  readonly name: string
  readonly says: string
  readonly place: Place
  /** Absent: what the caller may do does not change from row to row. */
  readonly path?: Path
}

const at = (place: Place, name: string, says: string, path?: Path): Column => ({
  name,
  says,
  place,
  ...(path === undefined ? {} : { path }),
})

export const COLUMNS = [
  at('open', 'nob', 'nobody: no credentials'),
  at('open', 'exp', 'the owner with an access token that has expired'),
  at('open', 'ref', 'the owner with a refresh token in the place of an access token'),
  at('open', 'dis', 'a second administrator of the domain, disabled as a user'),
  at('open', 'str', 'a stranger: the owner of another domain'),
  at('open', 'els', 'an administrator whose token is bound to another domain of his'),
  at('open', 'mem', 'a member of the domain without any action', 'none'),
  at('open', 'red', 'a member who may read what the call names, and no more', 'read'),
  at('open', '-A ', 'a member with every action on what the call names but the one that guards it', 'rest'),
  at('open', '-B ', 'a member with everything but the second action, on the other entity that the call names', 'half'),
  at('open', 'dir', 'a member with the actions by a role of the entity itself', 'direct'),
  at(
    'open',
    'grp',
    'a member with the actions by a role of the group it is in (client_X, channel_X, subgroup_X)',
    'group',
  ),
  at('open', 'anc', 'a member with the actions by a role two groups above (subgroup_client_X and so on)', 'ancestor'),
  at('open', 'dom', 'a member with the actions by a role of the domain (client_X, channel_X, group_X)', 'domain'),
  at('open', 'own', 'the owner of the domain: its built-in role admin'),
  at('open', 'bnd', 'the owner with a token that is bound to this domain'),
  at('open', 'key', 'the owner with an API key'),
  at('open', 'pat', 'the owner with a personal access token that has every scope in this domain'),
  at('open', 'p--', 'the owner with a personal access token for dashboards alone in this domain'),
  at('open', 'adm', 'the platform administrator'),
  at('disabled', 'mDi', 'a disabled domain: a member with every action but not the role admin'),
  at('disabled', 'aDi', 'a disabled domain: its administrator'),
  at('frozen', 'aFr', 'a frozen domain: its administrator'),
  at('deleted', 'aDe', 'a deleted domain: its administrator'),
] as const satisfies readonly Column[]

export type ColumnName = (typeof COLUMNS)[number]['name']
