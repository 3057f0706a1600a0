import { Link } from '@tanstack/react-router'

export type Tab = { readonly key: string; readonly name: string; readonly to: string }

export function Tabs({ label, tabs }: { label: string; tabs: readonly Tab[] }) {
  return (
    <nav className="tabs" aria-label={label}>
      {tabs.map(({ key, name, to }) => (
        <Link key={key} to={to} activeOptions={{ exact: true, includeSearch: false }}>
          {name}
        </Link>
      ))}
    </nav>
  )
}
