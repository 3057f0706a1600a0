/** The identity of a connection, and the targets of its topics. */
import type { DeviceCredentials, ChannelAccess, DeviceTopic, IdentifiedDevice } from '#api/devices/index.ts'

/** The identity of a connection. */
export type Identity = {
  /**
   * The key of the client that owns the sessions. Undefined while a secret matches clients of several domains and no topic has named the
   * domain (decision 31c).
   */
  readonly ownerKey: number | undefined
  /** Identifies the owner: client identifiers are unique within it only. */
  readonly scope: string
  readonly domainKey: number | undefined
  readonly credentials: DeviceCredentials | undefined
}

/** A topic or filter of a device itself (`c/<domain>/…`), with the device. */
export type DeviceFilter = { device: IdentifiedDevice; topic: DeviceTopic }

/** A topic name, resolved and authorized. */
export type Target = {
  /** The channel's key. */
  streamKey: number
  /** Canonical. */
  subtopic: string
  access: ChannelAccess | undefined
  /** Set for a topic of the device itself, which is no channel. */
  device?: DeviceFilter | undefined
}

/** A topic filter, resolved and authorized. */
export type FilterTarget = {
  streamKey: number
  /** Levels of the filter; `+` matches one, `#` all that follow. */
  levels: readonly string[]
  /** The topic before the subtopic in the form of this filter; undefined: the subtopic is the whole topic. */
  prefix: string | undefined
  access: ChannelAccess | undefined
  /** Set for a filter of the device itself, which follows no channel. */
  device?: DeviceFilter | undefined
}
