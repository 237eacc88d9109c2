. /test/lib.sh
rxe_up
rdma link show
conformance_fabric verbs || failed=1
exit $failed
