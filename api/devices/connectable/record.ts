/** The record that clients and channels share: the two ends of a connection. */

export type ConnectableType = 'client' | 'channel'
export type EnabledStatus = 'enabled' | 'disabled'

export type ConnectableRecord<T extends ConnectableType = ConnectableType> = {
  type: T
  key: number
  domainKey: number
  domainId: string
  id: string
  name: string
  tags: string[]
  metadata: Record<string, unknown>
  status: EnabledStatus
  parentGroupKey: number | null
  parentGroupId: string | null
  createdBy: string | null
  createdAt: string
  updatedBy: string | null
  updatedAt: string | null
}
