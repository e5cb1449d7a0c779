"""Who of a group's members reads which partition, for logs that live in one process.

Deterministic: partition p belongs to the p-th of the sorted member names, in turn. A partition changes hands only
when its holder asks (as Kafka's cooperative protocol has it), or when the holder is expelled.
"""

from collections.abc import Callable

from producer.log import Unavailable

__all__ = ["Group", "Member"]


class Member:
    """One consumer's place in a group. `held`: the partitions that it was told it has; `wake` is called when
    settling may change them."""

    __slots__ = ("fenced", "held", "name", "wake")

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self.name = name
        self.wake = wake
        self.held: set[int] = set()
        self.fenced = False


class Group:
    """The members that share `partitions`."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._members: dict[str, Member] = {}
        self._owners: dict[int, Member] = {}
        self._placed: dict[int, str] = {}

    @property
    def owners(self) -> dict[int, str]:
        """Partition -> name of the member that has it now."""
        return {partition: member.name for partition, member in sorted(self._owners.items())}

    def join(self, name: str, wake: Callable[[], None]) -> Member:
        """A new member; an older one of the same name is fenced and its partitions are free."""
        older = self._members.get(name)
        if older is not None:
            older.fenced = True
            self.leave(older)
        member = Member(name, wake)
        self._members[name] = member
        self._wake()
        return member

    def leave(self, member: Member) -> None:
        """Frees what the member had. It may still believe that it has it, until it settles."""
        if self._members.get(member.name) is member:
            del self._members[member.name]
        for partition in [p for p, owner in self._owners.items() if owner is member]:
            del self._owners[partition]
        member.wake()
        self._wake()

    def expel(self, name: str) -> None:
        """What a session timeout does: the member is out without having been asked, and joins again when it
        settles."""
        member = self._members.get(name)
        if member is not None:
            self.leave(member)

    def place(self, partition: int, name: str | None) -> None:
        """Gives the partition to the named member whenever it is there; None takes that back."""
        if name is None:
            self._placed.pop(partition, None)
        else:
            self._placed[partition] = name
        self._wake()

    def settle(self, member: Member) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(lost, assigned), for a member that has nothing in flight. Raises Unavailable when it is fenced."""
        if member.fenced:
            raise Unavailable(f"another member joined as {member.name}")
        if self._members.get(member.name) is not member:
            self._members[member.name] = member
            self._wake()
        wanted = self._wanted(member)
        lost = tuple(sorted(p for p in member.held if p not in wanted or self._owners.get(p) is not member))
        for partition in lost:
            if self._owners.get(partition) is member:
                del self._owners[partition]
        member.held.difference_update(lost)
        if lost:
            self._wake()
        assigned = tuple(p for p in wanted if p not in self._owners)
        for partition in assigned:
            self._owners[partition] = member
        member.held.update(assigned)
        return lost, assigned

    def _wanted(self, member: Member) -> list[int]:
        names = sorted(self._members)
        wanted = []
        for partition in range(self._partitions):
            name = self._placed.get(partition)
            if name not in self._members:
                name = names[partition % len(names)]
            if name == member.name:
                wanted.append(partition)
        return wanted

    def _wake(self) -> None:
        for member in self._members.values():
            member.wake()
