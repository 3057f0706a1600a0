/** Who connected, and what a topic means to them. */
import type { DeviceCredentials, MessageAccess } from '#api/devices/index.ts'

/** Who connected. */
export type Identity = {
  /**
   * Whose sessions these are: the key of the client. Undefined while a secret fits clients of several domains and no topic
   * has named the domain (decision 31c).
   */
  ownerKey: number | undefined
  /** Names the owner: client identifiers mean something within it alone. */
  scope: string
  domainKey: number | undefined
  credentials: DeviceCredentials | undefined
}

/** A topic name, resolved and allowed. */
export type Target = {
  /** The channel's key. */
  streamKey: number
  /** Canonical. */
  subtopic: string
  access: MessageAccess | undefined
}

/** A topic filter, resolved and allowed. */
export type FilterTarget = {
  streamKey: number
  /** Elements of the filter; `+` stands for one, `#` for all that follow. */
  levels: readonly string[]
  /** What stands before the subtopic in the form of this filter; undefined: the subtopic is the whole topic. */
  prefix: string | undefined
  access: MessageAccess | undefined
}
