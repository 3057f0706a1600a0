package main

import (
	"context"

	"github.com/absmach/supermq/pkg/sdk"
)

// roleCalls are the calls about the roles of one entity. The client has a method of each for each type of entity.
type roleCalls struct {
	entity           string
	available        func() ([]string, error)
	create           func(sdk.RoleReq) (sdk.Role, error)
	list             func() (sdk.RolesPage, error)
	view             func(role string) (sdk.Role, error)
	rename           func(role, name string) (sdk.Role, error)
	remove           func(role string) error
	addActions       func(role string, actions []string) ([]string, error)
	actions          func(role string) ([]string, error)
	removeActions    func(role string, actions []string) error
	removeAllActions func(role string) error
	addMembers       func(role string, members []string) ([]string, error)
	members          func(role string) (sdk.RoleMembersPage, error)
	removeMembers    func(role string, members []string) error
	removeAllMembers func(role string) error
	entityMembers    func() (sdk.EntityMembersPage, error)
}

// callRoles calls all of them for one entity.
func callRoles(calls roleCalls, member string, report func(string, error)) {
	name := func(verb, rest string) string { return verb + calls.entity + rest }
	available, err := calls.available()
	report(name("Available", "RoleActions"), wants(err, len(available) > 0, "actions"))
	role, err := calls.create(sdk.RoleReq{RoleName: fresh("role"), OptionalActions: []string{readAction}})
	report(name("Create", "Role"), wants(err, role.ID != "", "id"))
	roles, err := calls.list()
	report(name("", "Roles"), wants(err, len(roles.Roles) > 0, "roles"))
	viewed, err := calls.view(role.ID)
	report(name("", "Role"), wants(err, viewed.ID == role.ID, "id"))
	renamed := fresh("renamed")
	viewed, err = calls.rename(role.ID, renamed)
	report(name("Update", "Role"), wants(err, viewed.Name == renamed, "name"))
	actions, err := calls.addActions(role.ID, []string{otherAction})
	report(name("Add", "RoleActions"), wants(err, len(actions) == 1, "actions"))
	actions, err = calls.actions(role.ID)
	report(name("", "RoleActions"), wants(err, len(actions) == 2, "actions"))
	report(name("Remove", "RoleActions"), calls.removeActions(role.ID, []string{otherAction}))
	report(name("RemoveAll", "RoleActions"), calls.removeAllActions(role.ID))
	members, err := calls.addMembers(role.ID, []string{member})
	report(name("Add", "RoleMembers"), wants(err, len(members) == 1, "members"))
	membersPage, err := calls.members(role.ID)
	report(name("", "RoleMembers"), wants(err, len(membersPage.Members) == 1, "members"))
	entityMembers, err := calls.entityMembers()
	report(name("List", "Members"), wants(err, len(entityMembers.Members) > 0, "members"))
	report(name("Remove", "RoleMembers"), calls.removeMembers(role.ID, []string{member}))
	report(name("RemoveAll", "RoleMembers"), calls.removeAllMembers(role.ID))
	report(name("Delete", "Role"), calls.remove(role.ID))
}

// rolesOf returns the calls for each type of entity.
func rolesOf(mg sdk.SDK, token, domain, client, group string) []roleCalls {
	ctx := context.Background()
	page := sdk.PageMetadata{Limit: 10}
	return []roleCalls{
		{
			entity: "Client",
			available: func() ([]string, error) {
				r, err := mg.AvailableClientRoleActions(ctx, domain, token)
				return r, asError(err)
			},
			create: func(rq sdk.RoleReq) (sdk.Role, error) {
				r, err := mg.CreateClientRole(ctx, client, domain, rq, token)
				return r, asError(err)
			},
			list: func() (sdk.RolesPage, error) {
				r, err := mg.ClientRoles(ctx, client, domain, page, token)
				return r, asError(err)
			},
			view: func(role string) (sdk.Role, error) {
				r, err := mg.ClientRole(ctx, client, role, domain, token)
				return r, asError(err)
			},
			rename: func(role, name string) (sdk.Role, error) {
				r, err := mg.UpdateClientRole(ctx, client, role, name, domain, token)
				return r, asError(err)
			},
			remove: func(role string) error { return asError(mg.DeleteClientRole(ctx, client, role, domain, token)) },
			addActions: func(role string, actions []string) ([]string, error) {
				r, err := mg.AddClientRoleActions(ctx, client, role, domain, actions, token)
				return r, asError(err)
			},
			actions: func(role string) ([]string, error) {
				r, err := mg.ClientRoleActions(ctx, client, role, domain, token)
				return r, asError(err)
			},
			removeActions: func(role string, actions []string) error {
				return asError(mg.RemoveClientRoleActions(ctx, client, role, domain, actions, token))
			},
			removeAllActions: func(role string) error {
				return asError(mg.RemoveAllClientRoleActions(ctx, client, role, domain, token))
			},
			addMembers: func(role string, members []string) ([]string, error) {
				r, err := mg.AddClientRoleMembers(ctx, client, role, domain, members, token)
				return r, asError(err)
			},
			members: func(role string) (sdk.RoleMembersPage, error) {
				r, err := mg.ClientRoleMembers(ctx, client, role, domain, page, token)
				return r, asError(err)
			},
			removeMembers: func(role string, members []string) error {
				return asError(mg.RemoveClientRoleMembers(ctx, client, role, domain, members, token))
			},
			removeAllMembers: func(role string) error {
				return asError(mg.RemoveAllClientRoleMembers(ctx, client, role, domain, token))
			},
			entityMembers: func() (sdk.EntityMembersPage, error) {
				r, err := mg.ListClientMembers(ctx, client, domain, page, token)
				return r, asError(err)
			},
		},
		{
			entity: "Group",
			available: func() ([]string, error) {
				r, err := mg.AvailableGroupRoleActions(ctx, domain, token)
				return r, asError(err)
			},
			create: func(rq sdk.RoleReq) (sdk.Role, error) {
				r, err := mg.CreateGroupRole(ctx, group, domain, rq, token)
				return r, asError(err)
			},
			list: func() (sdk.RolesPage, error) {
				r, err := mg.GroupRoles(ctx, group, domain, page, token)
				return r, asError(err)
			},
			view: func(role string) (sdk.Role, error) {
				r, err := mg.GroupRole(ctx, group, role, domain, token)
				return r, asError(err)
			},
			rename: func(role, name string) (sdk.Role, error) {
				r, err := mg.UpdateGroupRole(ctx, group, role, name, domain, token)
				return r, asError(err)
			},
			remove: func(role string) error { return asError(mg.DeleteGroupRole(ctx, group, role, domain, token)) },
			addActions: func(role string, actions []string) ([]string, error) {
				r, err := mg.AddGroupRoleActions(ctx, group, role, domain, actions, token)
				return r, asError(err)
			},
			actions: func(role string) ([]string, error) {
				r, err := mg.GroupRoleActions(ctx, group, role, domain, token)
				return r, asError(err)
			},
			removeActions: func(role string, actions []string) error {
				return asError(mg.RemoveGroupRoleActions(ctx, group, role, domain, actions, token))
			},
			removeAllActions: func(role string) error {
				return asError(mg.RemoveAllGroupRoleActions(ctx, group, role, domain, token))
			},
			addMembers: func(role string, members []string) ([]string, error) {
				r, err := mg.AddGroupRoleMembers(ctx, group, role, domain, members, token)
				return r, asError(err)
			},
			members: func(role string) (sdk.RoleMembersPage, error) {
				r, err := mg.GroupRoleMembers(ctx, group, role, domain, page, token)
				return r, asError(err)
			},
			removeMembers: func(role string, members []string) error {
				return asError(mg.RemoveGroupRoleMembers(ctx, group, role, domain, members, token))
			},
			removeAllMembers: func(role string) error {
				return asError(mg.RemoveAllGroupRoleMembers(ctx, group, role, domain, token))
			},
			entityMembers: func() (sdk.EntityMembersPage, error) {
				r, err := mg.ListGroupMembers(ctx, group, domain, page, token)
				return r, asError(err)
			},
		},
		{
			entity:    "Domain",
			available: func() ([]string, error) { r, err := mg.AvailableDomainRoleActions(ctx, token); return r, asError(err) },
			create: func(rq sdk.RoleReq) (sdk.Role, error) {
				r, err := mg.CreateDomainRole(ctx, domain, rq, token)
				return r, asError(err)
			},
			list: func() (sdk.RolesPage, error) {
				r, err := mg.DomainRoles(ctx, domain, page, token)
				return r, asError(err)
			},
			view: func(role string) (sdk.Role, error) {
				r, err := mg.DomainRole(ctx, domain, role, token)
				return r, asError(err)
			},
			rename: func(role, name string) (sdk.Role, error) {
				r, err := mg.UpdateDomainRole(ctx, domain, role, name, token)
				return r, asError(err)
			},
			remove: func(role string) error { return asError(mg.DeleteDomainRole(ctx, domain, role, token)) },
			addActions: func(role string, actions []string) ([]string, error) {
				r, err := mg.AddDomainRoleActions(ctx, domain, role, actions, token)
				return r, asError(err)
			},
			actions: func(role string) ([]string, error) {
				r, err := mg.DomainRoleActions(ctx, domain, role, token)
				return r, asError(err)
			},
			removeActions: func(role string, actions []string) error {
				return asError(mg.RemoveDomainRoleActions(ctx, domain, role, actions, token))
			},
			removeAllActions: func(role string) error {
				return asError(mg.RemoveAllDomainRoleActions(ctx, domain, role, token))
			},
			addMembers: func(role string, members []string) ([]string, error) {
				r, err := mg.AddDomainRoleMembers(ctx, domain, role, members, token)
				return r, asError(err)
			},
			members: func(role string) (sdk.RoleMembersPage, error) {
				r, err := mg.DomainRoleMembers(ctx, domain, role, page, token)
				return r, asError(err)
			},
			removeMembers: func(role string, members []string) error {
				return asError(mg.RemoveDomainRoleMembers(ctx, domain, role, members, token))
			},
			removeAllMembers: func(role string) error {
				return asError(mg.RemoveAllDomainRoleMembers(ctx, domain, role, token))
			},
			entityMembers: func() (sdk.EntityMembersPage, error) {
				r, err := mg.ListDomainMembers(ctx, domain, page, token)
				return r, asError(err)
			},
		},
	}
}
