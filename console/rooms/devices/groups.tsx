/** Groups of a domain: the list, and one group with what is in it. */
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import type { Group as GroupRecord, GroupView } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Button, Id, Menu, SelectField, TextField } from '../../design/controls.tsx'
import { Card, Empty, EntityStatus, Facts, Tags, Time, counted } from '../../design/display.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
import { useAction, useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { EntityJournal } from '../../shell/entity-journal.tsx'
import { Filters } from '../../shell/filters.tsx'
import { splitTags } from '../../shell/tags.ts'
import { QueryView } from '../../shell/states.tsx'
import { DataTable } from '../../shell/table.tsx'
import { Tabs } from '../../shell/tabs.tsx'
import { useDomainDenied, useGroupDenied } from '../../shell/permissions.ts'
import { useDomainId, useParam, useView, useViews } from '../../shell/url.ts'

export function Groups() {
  const domain = useDomainId()
  const cannotCreate = useDomainDenied(domain)('group_create')
  const [views, setViews] = useViews()
  const [dialog, setDialog] = useView('create')
  const params = { domain_id: domain }
  const filters = {
    name: views['name'],
    tags: views['tags'],
    order: (views['order'] ?? 'name') as 'name' | 'created_at' | 'updated_at',
    dir: (views['dir'] ?? 'asc') as 'asc' | 'desc',
  }
  useEffect(() => {
    document.title = 'Groups · Skein'
  }, [])
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Groups</h1>
        <Button kind="primary" icon="plus" disabledReason={cannotCreate} onClick={() => setDialog('1')}>
          New group
        </Button>
      </div>
      <Filters fields={[{ name: 'tags', label: 'Tags', hint: 'Separated by commas; a group must have all of them' }]} />
      <DataTable<GroupRecord>
        label="Groups"
        queryKey={['GET /{domain_id}/groups', params, filters]}
        fetchPage={async ({ offset, limit, signal }) => {
          const page = await call('GET /{domain_id}/groups', {
            params,
            query: { ...filters, status: 'all', offset, limit },
            signal,
          })
          return { total: page.total, rows: page.groups as GroupRecord[] }
        }}
        rowId={({ id }) => id}
        hrefOf={({ id }) => paths.group(domain, id)}
        sort={{ order: filters.order, dir: filters.dir, onSort: (order, dir) => setViews({ order, dir }) }}
        columns={[
          {
            key: 'name',
            title: 'Name',
            width: 'minmax(160px, 2fr)',
            order: 'name',
            cell: (group) => (
              <Link className="main" dir="auto" tabIndex={-1} to={paths.group(domain, group.id)}>
                {group.name}
              </Link>
            ),
          },
          { key: 'status', title: 'Status', width: '100px', cell: ({ status }) => <EntityStatus status={status} /> },
          { key: 'level', title: 'Level', width: '60px', isMinor: true, cell: ({ level }) => level },
          {
            key: 'description',
            title: 'Description',
            width: 'minmax(120px, 2fr)',
            isMinor: true,
            cell: ({ description }) => description ?? '',
          },
          {
            key: 'created',
            title: 'Created',
            width: '110px',
            order: 'created_at',
            isMinor: true,
            cell: ({ created_at: at }) => <Time at={at} />,
          },
        ]}
        empty={
          <Card>
            {filters.name !== undefined || filters.tags !== undefined ? (
              <Empty
                icon="search"
                title="No group matches"
                actions={<Button onClick={() => setViews({ name: '', tags: '' })}>Clear filters</Button>}
              />
            ) : (
              <Empty
                icon="group"
                title="No groups yet"
                actions={
                  <Button kind="primary" icon="plus" disabledReason={cannotCreate} onClick={() => setDialog('1')}>
                    New group
                  </Button>
                }
              >
                A role on a group counts for the clients, channels and groups in it.
              </Empty>
            )}
          </Card>
        }
      />
      {dialog === '' || cannotCreate !== undefined ? null : <NewGroup domain={domain} onClose={() => setDialog('')} />}
    </>
  )
}

function NewGroup({ domain, parent, onClose }: { domain: string; parent?: string; onClose: () => void }) {
  const navigate = useNavigate()
  const [name, setName] = useState('')
  const [description, setDescription] = useState('')
  const create = useFormAction(
    'The group was not created',
    async () => {
      const group = await call('POST /{domain_id}/groups', {
        params: { domain_id: domain },
        body: {
          name: name.trim(),
          ...(description === '' ? {} : { description }),
          ...(parent === undefined ? {} : { parent_id: parent }),
        },
      })
      await navigate({ to: paths.group(domain, group.id) })
    },
    onClose,
  )
  return (
    <FormDialog
      title={parent === undefined ? 'New group' : 'New group inside'}
      submit="Create group"
      action={create}
      onClose={onClose}
    >
      <TextField label="Name" field="name" value={name} onChange={setName} autoFocus required />
      <TextField label="Description" field="description" value={description} onChange={setDescription} />
    </FormDialog>
  )
}

export function Group() {
  const domain = useDomainId()
  const id = useParam('id')
  const tab = useParam('tab')
  const result = useQuery(query('GET /{domain_id}/groups/{group_id}', { params: { domain_id: domain, group_id: id } }))
  useEffect(() => {
    document.title = `${result.data?.name ?? 'Group'} · Skein`
  }, [result.data?.name])
  return (
    <QueryView result={result} entity={`group:${id}`}>
      {(group) => (
        <>
          <Head group={group} domain={domain} />
          <Tabs
            label="Group"
            tabs={[
              { key: 'content', name: 'Content', to: paths.group(domain, id) },
              { key: 'about', name: 'About', to: paths.group(domain, id, 'about') },
              { key: 'journal', name: 'Journal', to: paths.group(domain, id, 'journal') },
            ]}
          />
          {tab === '' ? <Content domain={domain} group={id} /> : null}
          {tab === 'about' ? <About domain={domain} group={group} /> : null}
          {tab === 'journal' ? <EntityJournal domain={domain} type="group" id={id} /> : null}
        </>
      )}
    </QueryView>
  )
}

function Head({ group, domain }: { group: GroupView; domain: string }) {
  const navigate = useNavigate()
  const [dialog, setDialog] = useState<'edit' | 'delete' | 'inside'>()
  const denied = useGroupDenied(domain, group.id)
  // Either of them is enough.
  const cannotNest = denied('set_child') === undefined ? undefined : denied('subgroup_create')
  const params = { domain_id: domain, group_id: group.id }
  const remove = useFormAction('The group was not deleted', async () => {
    await call('DELETE /{domain_id}/groups/{group_id}', { params })
    await navigate({ to: paths.groups(domain) })
    return 'The group is deleted'
  })
  return (
    <div className="page-head">
      <h1 className="clip" dir="auto">
        {group.name}
      </h1>
      <EntityStatus status={group.status} />
      <span className="grow" />
      <Button icon="plus" disabledReason={cannotNest} onClick={() => setDialog('inside')}>
        Group inside
      </Button>
      <Button icon="settings" disabledReason={denied('update')} onClick={() => setDialog('edit')}>
        Edit
      </Button>
      <Menu
        label="More actions"
        icon="more"
        items={[
          {
            label: 'Explain access',
            icon: 'access',
            onSelect: () =>
              void navigate({ to: paths.access(domain, { entity: `group:${group.id}`, action: 'read' }) }),
          },
          'line',
          {
            label: 'Delete',
            icon: 'trash',
            isDanger: true,
            disabledReason: denied('delete'),
            onSelect: () => setDialog('delete'),
          },
        ]}
      />
      {dialog === 'edit' ? <Edit group={group} domain={domain} onClose={() => setDialog(undefined)} /> : null}
      {dialog === 'inside' ? <NewGroup domain={domain} parent={group.id} onClose={() => setDialog(undefined)} /> : null}
      {dialog === 'delete' ? (
        <Confirm
          title={`Delete ${group.name}`}
          submit="Delete group"
          action={remove}
          onClose={() => setDialog(undefined)}
        >
          Groups in it become roots, and its clients and channels lose their group. This cannot be undone.
        </Confirm>
      ) : null}
    </div>
  )
}

function Edit({ group, domain, onClose }: { group: GroupView; domain: string; onClose: () => void }) {
  const [name, setName] = useState(group.name)
  const [description, setDescription] = useState(group.description ?? '')
  const [tags, setTags] = useState(group.tags.join(', '))
  const save = useFormAction(
    'The group was not changed',
    async () => {
      await call('PATCH /{domain_id}/groups/{group_id}', {
        params: { domain_id: domain, group_id: group.id },
        body: { name: name.trim(), description, tags: splitTags(tags) },
      })
      return 'Saved'
    },
    onClose,
  )
  return (
    <FormDialog title="Edit group" submit="Save" action={save} onClose={onClose}>
      <TextField label="Name" field="name" value={name} onChange={setName} />
      <TextField label="Description" field="description" value={description} onChange={setDescription} />
      <TextField label="Tags" field="tags" value={tags} onChange={setTags} hint="Separated by commas" />
    </FormDialog>
  )
}

function Content({ domain, group }: { domain: string; group: string }) {
  const params = { domain_id: domain, group_id: group }
  const [adding, setAdding] = useState<'clients' | 'channels'>()
  const cannotChange = useGroupDenied(domain, group)('set_child')
  const groups = useQuery(query('GET /{domain_id}/groups/{group_id}/children', { params, query: { limit: 100 } }))
  const clients = useQuery(
    query('GET /{domain_id}/groups/{group_id}/clients', { params, query: { limit: 100, status: 'all' } }),
  )
  const channels = useQuery(
    query('GET /{domain_id}/groups/{group_id}/channels', { params, query: { limit: 100, status: 'all' } }),
  )
  const [take, isBusy] = useAction('It was not taken out', async (kind: 'clients' | 'channels', id: string) => {
    if (kind === 'clients')
      await call('DELETE /{domain_id}/clients/{client_id}/parent', {
        params: { domain_id: domain, client_id: id },
      })
    else
      await call('DELETE /{domain_id}/channels/{channel_id}/parent', {
        params: { domain_id: domain, channel_id: id },
      })
    return 'Taken out of the group'
  })
  const list = (kind: 'clients' | 'channels', rows: readonly { id: string; name: string }[]) =>
    rows.map(({ id, name }) => (
      <div key={id} className="list-row">
        <Link
          className="grow clip"
          dir="auto"
          to={kind === 'clients' ? paths.client(domain, id) : paths.channel(domain, id)}
        >
          {name === '' ? id : name}
        </Link>
        <Button
          small
          kind="quiet"
          icon="close"
          busy={isBusy}
          label={`Take ${name} out of the group`}
          disabledReason={cannotChange}
          onClick={() => void take(kind, id)}
        />
      </div>
    ))
  return (
    <div className="grid">
      <div className="third">
        <QueryView result={groups} entity={`group:${group}`}>
          {({ groups: rows, total }) => (
            <Card title={`${counted(total, 'group')} inside`} flush>
              {rows.length === 0 ? <Empty icon="group" title="No groups" /> : null}
              {rows.map((one) => (
                <Link key={one.id} className="list-row" to={paths.group(domain, one.id)}>
                  <span className="grow clip">{one.name}</span>
                </Link>
              ))}
            </Card>
          )}
        </QueryView>
      </div>
      <div className="third">
        <QueryView result={clients} entity={`group:${group}`}>
          {({ clients: rows, total }) => (
            <Card
              title={counted(total, 'client')}
              flush
              actions={
                <Button
                  small
                  icon="plus"
                  label="Add a client"
                  disabledReason={cannotChange}
                  onClick={() => setAdding('clients')}
                />
              }
            >
              {rows.length === 0 ? <Empty icon="client" title="No clients" /> : list('clients', rows)}
            </Card>
          )}
        </QueryView>
      </div>
      <div className="third">
        <QueryView result={channels} entity={`group:${group}`}>
          {({ channels: rows, total }) => (
            <Card
              title={counted(total, 'channel')}
              flush
              actions={
                <Button
                  small
                  icon="plus"
                  label="Add a channel"
                  disabledReason={cannotChange}
                  onClick={() => setAdding('channels')}
                />
              }
            >
              {rows.length === 0 ? <Empty icon="channel" title="No channels" /> : list('channels', rows)}
            </Card>
          )}
        </QueryView>
      </div>
      {adding === undefined ? null : (
        <Add domain={domain} group={group} kind={adding} onClose={() => setAdding(undefined)} />
      )}
    </div>
  )
}

function Add({
  domain,
  group,
  kind,
  onClose,
}: {
  domain: string
  group: string
  kind: 'clients' | 'channels'
  onClose: () => void
}) {
  const params = { domain_id: domain }
  const [name, setName] = useState('')
  const [chosen, setChosen] = useState('')
  const page = { limit: 100, order: 'name', dir: 'asc', name } as const
  const clients = useQuery({
    ...query('GET /{domain_id}/clients', { params, query: page }),
    enabled: kind === 'clients',
  })
  const channels = useQuery({
    ...query('GET /{domain_id}/channels', { params, query: page }),
    enabled: kind === 'channels',
  })
  const rows = kind === 'clients' ? (clients.data?.clients ?? []) : (channels.data?.channels ?? [])
  const add = useFormAction(
    'It was not added',
    async () => {
      const body = { parent_group_id: group }
      if (kind === 'clients')
        await call('POST /{domain_id}/clients/{client_id}/parent', { params: { ...params, client_id: chosen }, body })
      else
        await call('POST /{domain_id}/channels/{channel_id}/parent', {
          params: { ...params, channel_id: chosen },
          body,
        })
      return 'Added'
    },
    onClose,
  )
  const what = kind === 'clients' ? 'client' : 'channel'
  return (
    <FormDialog
      title={`Add a ${what}`}
      submit="Add"
      action={add}
      onClose={onClose}
      disabledReason={chosen === '' ? `Choose a ${what}` : undefined}
    >
      <TextField label="Find by name" value={name} onChange={setName} autoFocus />
      <SelectField
        label={what === 'client' ? 'Client' : 'Channel'}
        field={what === 'client' ? 'client_id' : 'channel_id'}
        value={chosen}
        onChange={setChosen}
        options={[['', 'Choose'], ...rows.map(({ id, name: its }): [string, string] => [id, its === '' ? id : its])]}
        hint="It leaves its present group."
      />
    </FormDialog>
  )
}

function About({ domain, group }: { domain: string; group: GroupView }) {
  return (
    <Card>
      <Facts
        rows={[
          ['Id', <Id key="id" id={group.id} />],
          [
            'Description',
            group.description ?? (
              <span key="description" className="muted">
                none
              </span>
            ),
          ],
          [
            'Inside of',
            group.parent_id === undefined ? (
              <span key="parent" className="muted">
                none
              </span>
            ) : (
              <Link key="parent" to={paths.group(domain, group.parent_id)}>
                its group
              </Link>
            ),
          ],
          ['Level', String(group.level)],
          ['Tags', <Tags key="tags" tags={group.tags} />],
          ['Created', <Time key="created" at={group.created_at} />],
        ]}
      />
    </Card>
  )
}
